"""The routes that the server's functions remember from call to call are those of the program."""

from __future__ import annotations

import json
from collections.abc import Sequence

from app.core import routing
from app.core.program import Action, Program, Step
from app.store.script_library import text_of
from app.store.store import connect
from tests.engine.driving import Bench

ONE = Program(body=(Step(id="one", action=Action.TOOL), Step(id="two", action=Action.TOOL)))


def going_to(queue: str) -> dict[str, routing.Route]:
    """The routes of the program as another version of this software would write them."""
    routes = dict(routing.routes(ONE))
    for path in ("one", "two"):
        routes[path] = {**routes[path], "queue": queue}
    return routes


def queues(bench: Bench, *names: str) -> Sequence[str]:
    """Where the steps of sessions that run the program one after the other are hinted."""
    found = []
    for name in names:
        drive = bench.start(ONE, name=name)
        answer = drive.settle(drive.take("one"))
        found.append(answer.hints[0].queue)
        drive.settle(drive.take("two"))
        drive.run("delete", {})
    return found


def test_a_program_that_is_written_anew_is_read_anew(bench: Bench) -> None:
    """The first session deleted the program with itself; names and clock are the same again."""
    bench = Bench(bench.redis, read=bench.read, routes=lambda _: going_to("first"))
    assert queues(bench, "aaaaaaaa", "aaaaaaaa") == ["first", "first"]
    bench.routes = lambda _: going_to("second")
    assert queues(bench, "aaaaaaaa") == ["second"]
    bench.restart()
    bench.routes = lambda _: going_to("third")
    assert queues(bench, "aaaaaaaa") == ["third"]


def test_a_session_of_before_goes_on_without_a_mark(store_url: str) -> None:
    bench = Bench(connect(store_url), routes=lambda _: going_to("first"))
    drive = bench.start(ONE)
    keys = bench.store.keys
    bench.redis.hdel(keys.part(drive.ref, "session"), "made")
    bench.redis.hdel(keys.program(ONE.hash), "made")
    route = {**routing.routes(ONE)["two"], "queue": "changed"}
    grant = drive.take("one")
    bench.redis.hset(keys.program(ONE.hash), "/two", json.dumps(route))
    assert [hint.queue for hint in drive.settle(grant).hints] == ["changed"]


def test_they_are_read_once(store_url: str) -> None:
    bench = Bench(connect(store_url))
    drive = bench.start(ONE)
    drive.settle(drive.take("one"))
    bench.redis.hdel(bench.store.keys.program(ONE.hash), "/one", "/two")
    drive.settle(drive.take("two"))
    assert bench.redis.hget(bench.store.keys.part(drive.ref, "session"), "status") == "completed"


def test_of_many_programs_not_all_are_remembered(store_url: str) -> None:
    def few(file: str) -> str:
        return text_of(file).replace("KEPT_MAX = 10000", "KEPT_MAX = 2")

    bench = Bench(connect(store_url), read=few)
    drives = [
        bench.start(Program(name=name, body=ONE.body), name=name * 8) for name in ("a", "b", "c")
    ]
    for drive in drives:
        drive.settle(drive.take("one"))
    for drive in drives:
        drive.settle(drive.take("two"))
        status = bench.redis.hget(bench.store.keys.part(drive.ref, "session"), "status")
        assert status == "completed"
