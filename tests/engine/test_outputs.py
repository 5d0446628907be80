"""The output of running bodies: a bounded ring per attempt that dies with its session."""

from __future__ import annotations

import pytest

from app.core.addresses import SessionRef
from app.core.records import Grant
from app.sessions.outputs import (
    ATTEMPTS,
    KEPT_S,
    QUIET_MS,
    RING_BYTES,
    Outputs,
    follow_outputs,
    list_outputs,
)
from app.store.store import connect
from tests.engine.world import World
from workers.attempt.output_writer import Ring
from workers.live_output import LiveOutput, Part, Stream

DO = "loop~1[1]/do"


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


class Writer:
    """Writes as the thread of a worker does."""

    def __init__(self, world: World, ref: SessionRef, grant: Grant) -> None:
        self._outputs = Outputs(world.engine.store)
        self._ring = Ring(ref, grant, LiveOutput())
        self._seq = 0

    def write(self, text: str, *, dropped: int = 0, stream: Stream = "stdout") -> str:
        self._seq += 1
        part = Part(self._seq, stream, text, dropped)
        return self._ring.append(self._outputs.append, [part]).word


def texts(world: World, ref: SessionRef, step: str | None = DO) -> list[list[str]]:
    found = list_outputs(world.engine, ref.id, step=step, limit=32)
    return [[part.text for part in view.parts] for view in found]


def test_what_an_attempt_writes_is_read_in_order(world: World) -> None:
    ref = world.session()
    writer = Writer(world, ref, world.grant(ref, DO))
    assert writer.write("one\n") == "kept"
    assert writer.write("two\n", dropped=7) == "kept"
    (view,) = list_outputs(world.engine, ref.id, step=DO, limit=1)
    assert (view.running, [(p.text, p.dropped) for p in view.parts]) == (
        True,
        [("one\n", 0), ("two\n", 7)],
    )


def test_a_ring_holds_its_newest_64_kilobytes(world: World) -> None:
    ref = world.session()
    writer = Writer(world, ref, world.grant(ref, DO))
    for number in range(40):
        writer.write(f"{number:04}" + "x" * 8_000)
    (kept,) = texts(world, ref)
    assert sum(map(len, kept)) <= RING_BYTES
    assert len(kept) == RING_BYTES // 8_004
    assert kept[-1].startswith("0039")


def test_a_lost_attempt_writes_no_more_and_is_not_shown_as_the_next(world: World) -> None:
    ref = world.session()
    first = Writer(world, ref, world.grant(ref, DO))
    assert first.write("of the first\n") == "kept"
    world.later(120_000)  # its lease is over
    second = Writer(world, ref, world.grant(ref, DO))
    assert first.write("late\n") == "superseded"
    assert second.write("of the second\n") == "kept"
    assert texts(world, ref) == [["of the second\n"], ["of the first\n"]]
    views = list_outputs(world.engine, ref.id, step=DO, limit=2)
    assert [view.running for view in views] == [True, False]


def test_the_last_part_may_come_after_the_settle(world: World) -> None:
    ref = world.session()
    grant = world.grant(ref, DO)
    writer = Writer(world, ref, grant)
    world.settle(ref, grant)
    assert writer.write("the end\n") == "kept"
    assert texts(world, ref) == [["the end\n"]]


def test_output_after_the_end_expires_with_its_session(world: World) -> None:
    ref = world.session()
    grant = world.grant(ref, DO)
    world.engine.control.apply(ref.id, "abort")
    world.engine.attempts.release(ref, grant, why="cancel")
    assert world.engine.queries.session(ref.id).status == "aborted"
    assert Writer(world, ref, grant).write("too late for a deadline\n") == "kept"
    redis = connect(world.engine.settings.redis_url)
    assert int(redis.ttl(world.engine.store.keys.part(ref, "outputs"))) > 0


def test_a_session_keeps_32_rings_and_the_quiet_ones_give_way(world: World) -> None:
    ref = world.session()
    grant = world.grant(ref, DO)
    redis = connect(world.engine.settings.redis_url)
    others = {f"other#{number}": world.now for number in range(ATTEMPTS)}
    redis.zadd(world.engine.store.keys.part(ref, "outputs"), others)
    writer = Writer(world, ref, grant)
    assert writer.write("no room\n") == "full"
    world.now += QUIET_MS
    assert writer.write("room\n") == "kept"
    assert texts(world, ref) == [["room\n"]]


def test_the_output_goes_with_its_session_and_leaves_no_key(world: World) -> None:
    ref = world.session()
    grant = world.grant(ref, DO)
    writer = Writer(world, ref, grant)
    writer.write("secret plans\n")
    redis = connect(world.engine.settings.redis_url)
    ring = world.engine.store.keys.output(ref, f"{DO}#{grant.fence}")
    assert 0 < int(redis.ttl(ring)) <= KEPT_S
    world.engine.attempts.release(ref, grant, why="drain")
    world.engine.deletion.delete(ref.id, force=True)
    world.later(1_000)
    assert redis.exists(ring) == 0
    assert writer.write("too late\n") == "unknown"
    assert [key for key in redis.scan_iter("*") if ref.id in str(key)] == []


def test_explain_says_how_old_the_last_output_is(world: World) -> None:
    ref = world.session()
    grant = world.grant(ref, DO)
    (wait,) = world.engine.explainer.explain(ref.id).waits
    assert "no output yet" in wait.text
    Writer(world, ref, grant).write("x\n")
    world.now += 12_000
    (wait,) = world.engine.explainer.explain(ref.id).waits
    assert "last output 12 s ago" in wait.text


def test_explain_names_the_last_trouble_of_the_running_attempt(world: World) -> None:
    ref = world.session()
    first = world.grant(ref, DO)
    Writer(world, ref, first).write("! error: of another attempt\n", stream="agent")
    world.engine.attempts.release(ref, first, why="drain")
    writer = Writer(world, ref, world.grant(ref, DO))
    writer.write("! retry: it says itself\n")

    def explained() -> str:
        (wait,) = world.engine.explainer.explain(ref.id).waits
        return wait.text

    assert "trouble" not in explained()
    writer.write("! retry: 1 of 5: away\n! retry: 2 of 5: away\n", stream="agent")
    writer.write("It goes on.\n! is how I write\n", stream="agent")
    world.now += 12_000
    assert "; last output 12 s ago; last trouble " in explained()
    assert explained().endswith(" s ago: retry: 2 of 5: away")


def test_following_brings_what_is_kept_and_then_only_what_is_new(world: World) -> None:
    ref = world.session()
    writer = Writer(world, ref, world.grant(ref, DO))
    writer.write("one\n")
    cursor = follow_outputs(world.engine, ref.id)
    assert [part.text for _, _, part in cursor.read()] == ["one\n"]
    assert list(cursor.read()) == []
    world.now += 1
    writer.write("two\n")
    assert [(address, part.text) for address, _, part in cursor.read()] == [(DO, "two\n")]
