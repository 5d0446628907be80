"""The Lua library on fakeredis: the same records as on a real server, and what fakeredis lacks.

`CONTRIBUTING.md` lists what it cannot do. Tests that depend on any of it use a real server.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fakeredis import FakeRedis, FakeServer
from redis.exceptions import ResponseError

from app.sessions.inbox import list_messages
from tests.engine.driving import Bench, Drive, loop, program, step
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.world import World

#: A server with functions, and one that has scripts alone.
VERSIONS = ((7,), (6,))


def fake(version: tuple[int, ...] = (7,)) -> Bench:
    return Bench(FakeRedis(server=FakeServer(version=version), decode_responses=True))


@pytest.fixture(params=VERSIONS, ids=("functions", "scripts"))
def bench(request: pytest.FixtureRequest) -> Bench:
    return fake(request.param)


def nested(bench: Bench) -> Drive:
    """Loops in each other; an attempt is lost, and a stale settle is refused."""
    inner = loop("inner", step("ask", "agent"), step("leave", "break"))
    drive = bench.start(program(loop("outer", inner, step("judge", "judge")), step("after")))
    lost = drive.take("outer~1[1]/inner~1[1]/ask")
    bench.tick(31)
    drive.sweep()
    drive.do("outer~1[1]/inner~1[1]/ask")
    assert drive.settle(lost).word == "superseded"
    drive.do("outer~1[1]/inner~1[1]/leave", verdict="retry")
    drive.do("outer~1[1]/inner~1[2]/ask")
    drive.do("outer~1[1]/inner~1[2]/leave", verdict="accept")
    drive.do("outer~1[1]/judge", verdict="accept")
    drive.do("after")
    return drive


def steered(bench: Bench) -> Drive:
    """Steps that fail, are tried again, park, and a session that is stopped and resumed."""
    drive = bench.start(program(step("a", retries=1), step("ask", "human"), step("b", needs=())))
    drive.do("a", "failed")
    bench.tick(5)
    drive.sweep()
    drive.do("a")
    question = drive.take("ask")
    drive.park(question)
    drive.control("stop")
    drive.control("resume")
    drive.answer("ask", question.fence + 1)  # parking grants a fence of its own
    drive.do("b")
    return drive


def content(redis: Any) -> dict[str, object]:
    """All keys with what they hold, but for ids of stream entries and times of the real clock."""
    found: dict[str, object] = {}
    for key in sorted(redis.keys("*")):
        match redis.type(key):
            case "hash":
                fields = redis.hgetall(key).items()
                found[key] = {name: parsed(text) for name, text in fields if name != "made"}
            case "zset":
                found[key] = redis.zrange(key, 0, -1, withscores=True)
            case "set":
                found[key] = sorted(redis.smembers(key))
            case "list":
                found[key] = [parsed(text) for text in redis.lrange(key, 0, -1)]
            case "stream":
                entries = [fields for _, fields in redis.xrange(key)]
                found[key] = [{n: parsed(text) for n, text in one.items()} for one in entries]
            case _:
                found[key] = redis.get(key)
        found[f"TTL of {key}"] = redis.ttl(key) > 0
    return found


def parsed(text: str) -> object:
    """JSON, but for what its encoders may choose.

    That is the order of an object's fields, the sign of an empty table and the length of a text.
    """
    try:
        return json.loads(text, object_hook=lambda found: (found | {"length": 0}) if found else [])
    except ValueError:
        return text


@pytest.mark.parametrize("drive", [nested, steered])
def test_a_session_leaves_the_same_records_as_on_a_real_server(
    bench: Bench, store_url: str, drive: Callable[[Bench], Drive]
) -> None:
    real = Bench.at(store_url)
    driven = drive(bench)
    assert driven.status == drive(real).status == "completed"
    driven.ended_well()
    assert content(bench.redis) == content(real.redis)


def test_a_plan_runs_with_reports_and_edits(bench: Bench) -> None:
    plan = PlanWorld(
        World.of(bench), [{"id": "a"}, {"id": "b", "dependencies": ["a"]}, {"id": "c"}]
    )
    plan.begin()
    plan.report("a", "completed", notes="all of it")
    plan.edit({"op": "change", "id": "b", "title": "Later"}, version=plan.view.version)
    plan.finish("a")
    plan.exit("c")
    assert plan.at_work() == {"b"}
    plan.finish("b")
    assert plan.status == "completed"
    assert plan.statuses() == {"a": "completed", "b": "completed", "c": "failed"}
    assert len(list_messages(plan.engine, plan.id).items) == 4


@pytest.mark.parametrize(
    "command",
    [("INFO", "server"), ("CONFIG", "GET", "maxmemory"), ("MEMORY", "USAGE", "x"),
     ("OBJECT", "FREQ", "x"), ("WAIT", "0", "0"), ("EVAL", "return redis.sha1hex('x')", "0")],
    ids=lambda command: command[0],
)  # fmt: skip
def test_what_the_documentation_lists_as_missing_is_missing(command: tuple[str, ...]) -> None:
    with pytest.raises(ResponseError):
        fake().redis.execute_command(*command)


def test_a_sweep_needs_a_real_server() -> None:
    world = World.of(fake())
    with pytest.raises(ResponseError, match="info"):
        world.later(1_000)


def test_json_is_written_in_other_words_than_by_a_real_server() -> None:
    assert fake().redis.eval("return cjson.encode('a/b') .. cjson.encode({})", 0) == '"a/b"[]'
