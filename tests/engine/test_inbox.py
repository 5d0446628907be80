"""The inbox of a session: which turn gets a message, and who acknowledges it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.messages import BYTES, END, NOTICE
from app.core.outcomes import Outcome
from app.core.program import Action, Program, Step
from app.core.records import Grant
from app.errors import CapabilityRefused, InvalidDocument
from app.security.signatures import Caller
from app.sessions.callers import find_session_caller, is_current
from app.sessions.inbox import (
    KEPT,
    Sender,
    append_message,
    list_messages,
    send_hint,
    send_to_parent,
    take_all,
)
from app.sessions.submit import About
from app.store.script_library import text_of
from app.store.store import connect
from leadhand.errors import IdempotencyConflict, MessageRefused
from leadhand.models.verdicts import Reason, ReasonCode
from tests.engine.driving import Bench, loop, program, step
from tests.engine.flows.changed_flow import Flow
from tests.engine.test_fsck import audit
from tests.engine.world import DONE, World
from tests.flows import llm

DO = "loop~1[1]/do"
TWO = Program(body=(Step(id="a", action=Action.AGENT), Step(id="b", action=Action.AGENT, needs=())))


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def send(world: World, ref: SessionRef, *texts: str) -> None:
    for text in texts:
        send_hint(world.engine, ref.id, text, by="ann")


def texts(grant: Grant) -> list[str]:
    return [message.text for message in grant.messages]


def unread(world: World, ref: SessionRef) -> list[str]:
    return [one.text for one in list_messages(world.engine, ref.id, unread=True).items]


def child_of(world: World, ref: SessionRef, grant: Grant) -> SessionRef:
    """A child session that a running step has started."""
    parent: dict[str, JsonValue] = {
        "session": ref.id, "address": grant.address, "fence": grant.fence,
        "base": world.engine.store.keys.base(ref),
    }  # fmt: skip
    about = About(kind="loop", name="child", cwd="/c", folder="/c")
    made = world.engine.submit.program(TWO, about, parent=parent, root=ref.root)
    return SessionRef(made.session, ref.root)


def test_a_turn_gets_what_came_before_its_claim_and_acknowledges_it(world: World) -> None:
    ref = world.session()
    send(world, ref, "one", "two")
    grant = world.grant(ref, DO)
    send(world, ref, "later")
    assert texts(grant) == ["one", "two"]
    assert unread(world, ref) == ["one", "two", "later"]
    world.settle(ref, grant)
    assert unread(world, ref) == ["later"]
    first = list_messages(world.engine, ref.id).items[0]
    assert (first.kind, first.sender, first.read_by) == ("hint", "ann", DO)
    assert first.read_at is not None


def test_a_session_without_messages_has_none_in_its_grants(world: World) -> None:
    ref = world.session()
    assert world.grant(ref, DO).messages == ()


def test_a_lost_attempt_leaves_its_messages_to_the_next(world: World) -> None:
    ref = world.session()
    send(world, ref, "one")
    lost = world.grant(ref, DO)
    send(world, ref, "two")
    world.later(120_000)  # its lease is over
    again = world.grant(ref, DO)
    assert (texts(lost), texts(again)) == (["one"], ["one", "two"])
    assert world.settle(ref, lost).word == "superseded"
    assert unread(world, ref) == ["one", "two"]
    world.settle(ref, again)
    assert unread(world, ref) == []


def test_a_repeated_claim_and_a_repeated_settle_change_nothing(world: World) -> None:
    ref = world.session()
    send(world, ref, "one")
    attempts = world.engine.attempts
    first = attempts.claim(ref, DO, nonce="n", worker="w").grants[0]
    send(world, ref, "two")
    again = attempts.claim(ref, DO, nonce="n", worker="w").grants[0]
    assert texts(first) == texts(again) == ["one"]
    world.settle(ref, first)
    assert world.settle(ref, first).word == "repeated"
    assert unread(world, ref) == ["two"]


def test_two_turns_at_once_get_no_message_both(world: World) -> None:
    about = About(kind="graph", name="x", cwd="/f", folder="/f", place="here")
    ref = SessionRef(*[world.engine.submit.program(TWO, about).session] * 2)
    send(world, ref, "one")
    first = world.grant(ref, "a")
    send(world, ref, "two")
    second = world.grant(ref, "b")
    assert (texts(first), texts(second)) == (["one"], ["two"])
    world.settle(ref, second)
    assert unread(world, ref) == ["one"]


def test_the_messages_of_a_failed_step_are_for_the_next_turn(world: World) -> None:
    about = About(kind="graph", name="x", cwd="/f", folder="/f", place="here")
    steps = (Step(id="a", action=Action.AGENT, critical=False), Step(id="b", action=Action.AGENT))
    ref = SessionRef(*[world.engine.submit.program(Program(body=steps), about).session] * 2)
    send(world, ref, "one")
    reason = Reason(code=ReasonCode.FAILED_STEP, text="no")
    failed = Outcome(word="failed", reason=reason, retryable=False)
    world.settle(ref, world.grant(ref, "a"), failed)
    assert texts(world.grant(ref, "b")) == ["one"]


def test_a_turn_gets_at_most_64_kilobytes_and_the_rest_waits(world: World) -> None:
    ref = world.session()
    send(world, ref, *(str(number) + "x" * 16_000 for number in range(6)))
    grant = world.grant(ref, DO)
    assert [text[0] for text in texts(grant)] == list("0123")
    world.settle(ref, grant)
    assert [text[0] for text in unread(world, ref)] == list("45")


def test_what_is_blank_or_too_long_is_refused(world: World) -> None:
    ref = world.session()
    for text in (" \n", "x" * (BYTES + 1)):
        with pytest.raises(InvalidDocument, match="text is"):
            send(world, ref, text)
    with pytest.raises(InvalidDocument, match="data is"):
        append_message(
            world.engine, ref, NOTICE, "t", sender=Sender("x"), data={"big": "x" * BYTES}
        )
    with pytest.raises(InvalidDocument, match="kind is 'Hint!'"):
        append_message(world.engine, ref, "Hint!", "t", sender=Sender("x"))
    assert unread(world, ref) == []


def test_a_full_inbox_refuses_until_messages_are_acknowledged(world: World) -> None:
    ref = world.session()
    send(world, ref, *map(str, range(KEPT)))
    with pytest.raises(MessageRefused, match="1000 messages are unread"):
        send(world, ref, "too many")
    world.settle(ref, world.grant(ref, DO))  # it got 100
    send(world, ref, *(f"more {number}" for number in range(100)))
    with pytest.raises(MessageRefused):
        send(world, ref, "too many")
    kept = list_messages(world.engine, ref.id, limit=500)
    assert [one.id for one in kept.items][:2] == [101, 102]


def test_a_repeated_message_is_stored_once_and_another_one_is_refused(world: World) -> None:
    ref = world.session()
    hint = partial(send_hint, world.engine)
    first = hint(ref.id, "one", by="ann", idempotency_key="k")
    assert hint(ref.id, "one", by="ann", idempotency_key="k") == first
    assert hint(ref.id, "one", by="bob", idempotency_key="k").id == 2, "a key is its sender's"
    with pytest.raises(IdempotencyConflict):
        hint(ref.id, "other", by="ann", idempotency_key="k")
    assert unread(world, ref) == ["one", "one"]


def test_an_ended_session_accepts_ends_only_and_tells_of_them(world: World) -> None:
    ref = world.session()
    world.turn(ref, 1, "accept")
    with pytest.raises(MessageRefused, match="it is completed"):
        send(world, ref, "late")
    append_message(world.engine, ref, END, "child x ended", sender=Sender("x"))
    (line,) = world.engine.queries.session(ref.id).needs_attention
    assert line == f"1 unread message that no turn will read; read with: leadhand inbox {ref.id}"
    redis = connect(world.engine.settings.redis_url)
    for part in ("inbox", "unread"):
        assert int(redis.ttl(world.engine.store.keys.part(ref, part))) > 0
    assert audit(world.engine.audit.run).items == []


def test_messages_to_a_stopped_session_are_read_after_its_resume(world: World) -> None:
    ref = world.session()
    world.engine.control.apply(ref.id, "stop")
    send(world, ref, "try the other way")
    assert world.engine.queries.session(ref.id).needs_attention
    world.engine.control.apply(ref.id, "resume")
    assert world.engine.queries.session(ref.id).needs_attention == []
    assert texts(world.grant(ref, DO)) == ["try the other way"]


def test_a_reader_outside_takes_each_message_once(world: World) -> None:
    ref = world.session()
    send(world, ref, "of the turn")
    grant = world.grant(ref, DO)
    send(world, ref, "one", "two")
    take = partial(take_all, world.engine)
    taken = take(ref.id, by="hook", idempotency_key="k")
    assert [one.text for one in taken] == ["one", "two"]
    assert take(ref.id, by="hook", idempotency_key="k") == taken, "a lost reply is asked for again"
    assert take(ref.id, by="hook", idempotency_key="k2") == ()
    assert unread(world, ref) == ["of the turn"]
    world.settle(ref, grant)
    assert [one.read_by for one in list_messages(world.engine, ref.id).items] == [
        DO, "hook", "hook",
    ]  # fmt: skip


def test_a_child_notifies_its_parent_and_a_failure_calls_for_a_person(world: World) -> None:
    ref = world.session()
    grant = world.grant(ref, DO)
    child = child_of(world, ref, grant)
    attempt = world.grant(child, "a")
    caller = Caller(child.id, "a", attempt.fence, ())
    notify = partial(send_to_parent, world.engine)
    notify(child.id, "success", "half of it works", pr_number=7, by=caller)
    assert world.engine.queries.session(ref.id).needs_attention == []
    notify(child.id, "failure", "it does not build", by=caller)
    (line,) = world.engine.queries.session(ref.id).needs_attention
    assert line.startswith("1 unread message of child sessions report")
    found = list_messages(world.engine, ref.id).items
    assert [(one.sender, one.kind, one.text, one.escalates) for one in found] == [
        (child.id, "notice", "half of it works\n\npr_number: 7", False),
        (child.id, "notice", "it does not build", True),
    ]
    assert world.engine.queries.session(child.id).status == "active", "it is no completion signal"
    world.settle(ref, grant)
    world.settle(ref, world.claim(ref, "loop~1[1]/check").grants[0])
    take_all(world.engine, ref.id, by="ann")
    assert world.engine.queries.session(ref.id).needs_attention == []


def test_a_superseded_attempt_and_an_ended_child_report_nothing(world: World) -> None:
    ref = world.session()
    child = child_of(world, ref, world.grant(ref, DO))
    lost = Caller(child.id, "a", world.grant(child, "a").fence, ())
    world.later(31_000)
    notify = partial(send_to_parent, world.engine)
    with pytest.raises(CapabilityRefused):
        notify(child.id, "success", "late", by=lost)
    world.engine.control.apply(child.id, "abort")
    with pytest.raises(MessageRefused, match="has ended"):
        notify(child.id, "success", "too late")
    with pytest.raises(MessageRefused, match="has no parent"):
        notify(ref.id, "success", "to whom?")
    assert unread(world, ref) == []


def test_a_session_token_lives_as_long_as_its_session(world: World) -> None:
    ref, engine = world.session(), world.engine
    grant = world.grant(ref, DO)
    attempt = Caller(ref.id, DO, grant.fence, ())
    token = find_session_caller(engine, attempt)
    world.settle(ref, grant)
    assert is_current(engine, token), "it outlives the attempt"
    assert not is_current(engine, token._replace(fence=token.fence + 1))
    world.engine.control.apply(ref.id, "stop")
    assert not is_current(engine, token), "a stop suspends it"
    world.engine.control.apply(ref.id, "resume")
    assert is_current(engine, token), "a resume revives it"
    with pytest.raises(CapabilityRefused):
        find_session_caller(engine, attempt)


def test_a_session_token_is_void_after_a_failure_also_once_it_is_resumed(world: World) -> None:
    ref, engine = world.session(), world.engine
    grant = world.grant(ref, DO)
    token = find_session_caller(engine, Caller(ref.id, DO, grant.fence, ()))
    world.later(1_000)
    reason = Reason(code=ReasonCode.FAILED_STEP, text="no")
    failed = Outcome(word="failed", reason=reason, retryable=False)
    world.settle(ref, grant, failed)
    assert world.engine.queries.session(ref.id).status == "failed"
    assert not is_current(engine, token)
    world.engine.control.apply(ref.id, "resume")
    assert world.engine.queries.session(ref.id).status == "active"
    assert not is_current(engine, token)


def test_the_audit_finds_a_wrong_count_of_unread_messages(world: World) -> None:
    ref = world.session()
    send(world, ref, "one", "two")
    assert audit(world.engine.audit.run).items == []
    redis = connect(world.engine.settings.redis_url)
    redis.hset(world.engine.store.keys.part(ref, "session"), "unread", 7)
    redis.hdel(world.engine.store.keys.part(ref, "inbox"), "2")
    assert {one.kind for one in audit(world.engine.audit.run, repair=True).items} == {
        "inbox_count",
        "message_lost",
    }
    assert audit(world.engine.audit.run).items == []
    assert unread(world, ref) == ["one"]


def test_messages_go_with_their_session(world: World) -> None:
    ref = world.session()
    send(world, ref, "one")
    world.engine.deletion.delete(ref.id, force=True)
    world.later(1_000)
    redis = connect(world.engine.settings.redis_url)
    assert [key for key in redis.scan_iter("*") if ref.id in str(key)] == []


def test_a_message_is_an_event_and_the_transcript_shows_where_it_was_given(world: World) -> None:
    ref = world.session()
    send(world, ref, "look at the log")
    world.settle(ref, world.grant(ref, DO), DONE)
    ((_, fields),) = world.told(ref, "inbox.message")
    assert fields == {"id": 1, "kind": "hint", "from": "ann", "text": "look at the log"}
    assert world.told(ref, "inbox.read") == [(None, {"ids": [1], "by": DO})]
    entry = world.engine.queries.transcript(ref.id).items[0]
    assert (entry.role, entry.address) == ("note", DO)
    assert entry.text == "messages that this turn got:\n1. hint from ann: look at the log"


def commands_of(bench: Bench) -> Counter[str]:
    """The Redis commands that a loop of two iterations takes, those in scripts included."""
    bench.restart()
    drive = bench.start(program(loop("green", step("do", "agent"), step("judge", "judge"))))
    bench.redis.config_resetstat()
    for verdict in ("retry", "accept"):
        grant = drive.take(drive.ready()[0])
        drive.bench.tick(1)
        drive.beat(grant)
        judge = drive.settle(grant, take=[f"n{verdict}"]).grants[0]
        if verdict == "retry":
            drive.settle(judge, verdict=verdict)
    stats = bench.redis.info("commandstats")
    return Counter({name: int(one["calls"]) for name, one in stats.items()})


def test_a_session_without_messages_takes_no_more_commands_than_without_an_inbox(
    bench: Bench,
) -> None:
    anchors = {
        "lib/inbox": ("return tx.session.unread ~= '' and", "return false and"),
        "lib/transaction": ("'unread', ", ""),
    }

    def without(file: str) -> str:
        text = text_of(file)
        old, new = anchors.get(file, ("", ""))
        assert old in text
        return text.replace(old, new) if old else text

    commands_of(bench)  # loads the library
    now = commands_of(bench)
    other = Bench(bench.client(), read=without)
    commands_of(other)
    assert commands_of(other) == now


def test_an_llm_step_of_a_flow_gets_the_messages_too(bench: Bench, tmp_path: Path) -> None:
    flow = Flow(bench, tmp_path)
    flow.start(llm("a", label="a"), llm("b", label="b"))
    send(flow.world, flow.ref, "before a")
    first = flow.world.grant(flow.ref, "a")
    send(flow.world, flow.ref, "before b")
    flow.world.settle(flow.ref, first)
    assert texts(first) == ["before a"]
    assert texts(flow.world.grant(flow.ref, "b")) == ["before b"]


def test_a_session_says_which_messages_come_after_its_last_turn(bench: Bench) -> None:
    world = World.of(bench)
    steps = (Step(id="a", action=Action.AGENT), Step(id="t", action=Action.TOOL))
    about = About(kind="graph", name="x", cwd="/f", folder="/f", place="here")
    ref = SessionRef(*[world.engine.submit.program(Program(body=steps), about).session] * 2)
    send(world, ref, "one")
    assert world.engine.queries.session(ref.id).needs_attention == []
    world.settle(ref, world.grant(ref, "a"))
    send(world, ref, "too late")
    view = world.engine.queries.session(ref.id)
    assert view.status == "active"
    (line,) = view.needs_attention
    assert line.startswith("1 unread message that no turn will read")


def test_the_event_of_a_message_has_its_beginning_in_whole_characters(world: World) -> None:
    ref = world.session()
    send(world, ref, "a café", "." + "é" * 150)
    told = [f["text"] for _, f in world.told(ref, "inbox.message") if isinstance(f, dict)]
    assert told == ["a café", "." + "é" * 99]
