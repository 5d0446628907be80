"""Conversations: one attempt at a time, and each continues after the last outcome."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome, Thread, Usage
from app.core.program import Action, Program, RetryPolicy, Step
from app.sessions.submit import About
from app.store.script_library import text_of
from app.store.store import connect
from tests.engine.driving import Bench
from tests.engine.world import World
from workers.attempt.settle import park

TALK = "claude|main"


def agent(name: str, *, talk: str | None = TALK, needs: tuple[str, ...] | None = None) -> Step:
    retry = RetryPolicy(retries=1, backoff_s=0)
    return Step(id=name, action=Action.AGENT, conversation=talk, needs=needs, retry=retry)


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def begun(world: World, *steps: Step) -> SessionRef:
    id_ = world.engine.submit.program(Program(body=steps), About(kind="flow", name="x")).session
    return SessionRef(id_, id_)


def went_on(id_: str | None) -> Outcome:
    told = Usage(cost_usd=0.1, input_tokens=3)
    return Outcome(word="succeeded", thread=Thread(conversation=TALK, id=id_, told=told))


def test_a_conversation_goes_on_in_the_next_step(world: World) -> None:
    ref = begun(world, agent("first"), agent("other", talk="claude|else"), agent("last"))
    first = world.grant(ref, "first")
    assert first.thread is None
    world.settle(ref, first, went_on("t1"))
    other = world.grant(ref, "other")
    assert other.thread is None
    world.settle(ref, other)
    assert world.grant(ref, "last").thread == went_on("t1").thread


def test_a_conversation_that_is_forgotten_begins_anew(world: World) -> None:
    ref = begun(world, agent("first"), agent("reset"), agent("last"))
    world.settle(ref, world.grant(ref, "first"), went_on("t1"))
    world.settle(ref, world.grant(ref, "reset"), went_on(None))
    assert world.grant(ref, "last").thread is None


def test_a_failed_or_lost_attempt_leaves_the_conversation_where_it_was(world: World) -> None:
    ref = begun(world, agent("first"), agent("last"))
    world.settle(ref, world.grant(ref, "first"), went_on("t1"))
    failed = went_on("t2").model_copy(update={"word": "failed"})
    assert world.settle(ref, world.grant(ref, "last"), failed).word == "again"
    world.later(500)
    assert world.grant(ref, "last").thread == went_on("t1").thread
    world.later(31_000)
    assert world.grant(ref, "last").thread == went_on("t1").thread


def test_parallel_steps_of_one_conversation_take_turns(world: World) -> None:
    ref = begun(world, agent("one", needs=()), agent("two", needs=()))
    one = world.grant(ref, "one")
    refused = world.claim(ref, "two")
    assert (refused.why, refused.lock) == ("lock", f"talk:{ref.id}:{TALK}")
    note = f"two waits for talk:{ref.id}:{TALK}, held by {ref.id}"
    assert world.engine.queries.session(ref.id).notes == [note]
    world.settle(ref, one, went_on("t1"))
    assert (ref, "two") in world.hints
    assert world.grant(ref, "two").thread == went_on("t1").thread


def test_other_sessions_have_conversations_of_their_own(world: World) -> None:
    first, second = begun(world, agent("only")), begun(world, agent("only"))
    world.grant(first, "only")
    assert world.grant(second, "only").thread is None


def test_a_resumed_session_keeps_its_conversations(world: World) -> None:
    ref = begun(world, agent("first"), agent("last"))
    world.settle(ref, world.grant(ref, "first"), went_on("t1"))
    world.engine.control.apply(ref.id, "stop")
    world.engine.control.apply(ref.id, "resume")
    assert world.grant(ref, "last").thread == went_on("t1").thread


def test_a_session_that_is_sent_back_forgets_what_was_said_after_the_point(world: World) -> None:
    ref = begun(world, agent("a"), agent("b"), agent("c"))
    world.settle(ref, world.grant(ref, "a"), went_on("t1"))
    world.settle(ref, world.grant(ref, "b"), went_on("t2"))
    world.engine.control.apply(ref.id, "stop")
    world.engine.control.apply(ref.id, "resume", after="a")
    assert world.grant(ref, "b~2").thread == went_on("t1").thread


def test_of_steps_side_by_side_who_spoke_last_counts_where_a_session_goes_on(world: World) -> None:
    body = (agent("one", needs=()), agent("two", needs=()), agent("end", needs=("one", "two")))
    ref = begun(world, *body, agent("late"))
    for at, name in enumerate(("two", "one", "end")):
        world.now += 1
        world.settle(ref, world.grant(ref, name), went_on(f"t{at}"))
    world.engine.control.apply(ref.id, "stop")
    world.engine.control.apply(ref.id, "resume", after="two")
    assert world.grant(ref, "end~2").thread == went_on("t1").thread


def test_conversations_go_with_their_session(world: World) -> None:
    ref = begun(world, agent("only"))
    world.settle(ref, world.grant(ref, "only"), went_on("t1"))
    threads = world.engine.store.keys.part(ref, "threads")
    assert world.engine.store._redis.ttl(threads) > 0
    world.engine.deletion.delete(ref.id)
    assert not world.engine.store._redis.exists(threads)


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_a_long_transcript_loses_its_beginning_and_says_so(store_url: str, limit: int) -> None:
    def short(file: str) -> str:
        return text_of(file).replace("RECORDS_MAX = 5000", "RECORDS_MAX = 3")

    world = World.of(Bench(connect(store_url), read=short))
    ref = begun(world, *(agent(name) for name in "abcde"))

    def say(name: str) -> None:
        outcome = Outcome(word="succeeded", text=f"said by {name}")
        world.settle(ref, world.grant(ref, name), outcome)

    for name in "abc":
        say(name)
    read = world.engine.queries.transcript(ref.id, limit=2)
    assert [entry.seq for entry in read.items] == [1, 2]
    for name in "de":
        say(name)
    # A reader of two entries continues with the third; a new reader learns what was removed.
    following = world.engine.queries.transcript(ref.id, limit=9, cursor=read.next)
    assert [e.seq for e in following.items] == [
        3, 4, 5,
    ]  # fmt: skip
    pages = [world.engine.queries.transcript(ref.id, limit=limit)]
    while pages[-1].next:
        pages.append(world.engine.queries.transcript(ref.id, limit=limit, cursor=pages[-1].next))
    assert max(len(page.items) for page in pages) <= limit
    assert [(entry.seq, entry.text) for page in pages for entry in page.items] == [
        (2, "the first 2 records were dropped"),
        (3, "said by c"), (4, "said by d"), (5, "said by e"),
    ]  # fmt: skip
    told = [e for e in world.engine.queries.events(ref.id) if e.type == "transcript.added"]
    assert [event.fields["seq"] for event in told] == [1, 2, 3, 4, 5]
    assert "said by e" in "".join(world.engine.queries.transcript_text(ref.id))


def test_what_was_said_stands_in_one_order_and_is_told(world: World) -> None:
    ref = begun(world, agent("first"), agent("last"))
    for name, text in (("first", "eins"), ("last", "zwei" + "ü" * 300)):
        outcome = Outcome(word="succeeded", prompt=f"say {name}", text=text)
        world.settle(ref, world.grant(ref, name), outcome)
    page = world.engine.queries.transcript(ref.id, limit=3)
    assert [(e.seq, e.role, e.text) for e in page.items] == [
        (1, "user", "say first"), (2, "assistant", "eins"), (3, "user", "say last"),
    ]  # fmt: skip
    (last,) = world.engine.queries.transcript(ref.id, limit=3, cursor=page.next).items
    assert (last.seq, last.agent, last.identifier) == (4, "claude", "main")
    told = [e for e in world.engine.queries.events(ref.id) if e.type == "transcript.added"]
    assert [event.fields["seq"] for event in told] == [1, 2, 3, 4]
    beginning = told[-1].fields["text"]
    assert isinstance(beginning, str)
    assert last.text.startswith(beginning)
    assert 190 <= len(beginning.encode()) <= 200
    assert "## 4. last · assistant (claude|main)" in "".join(
        world.engine.queries.transcript_text(ref.id)
    )


def test_a_key_in_a_persons_answer_is_not_shown_and_goes_to_who_needs_it(world: World) -> None:
    key = "ghp_abcdefgh12345678"
    ask = Step(id="ask", action=Action.HUMAN, inputs={"question": f"Is {key} still good?"})
    told: dict[str, JsonValue] = {"answer": "${ask.text}"}
    ref = begun(world, ask, Step(id="use", action=Action.AGENT, inputs=told))
    park(world.engine, world.engine.attempts.work(ref, world.grant(ref, "ask")))
    world.engine.answers.give(ref.id, f"no, use {key}x")
    said = [entry.text for entry in world.engine.queries.transcript(ref.id).items]
    assert said == ["Is [redacted] still good?", "no, use [redacted]"]
    assert "transcript.added" in {event.type for event in world.engine.queries.events(ref.id)}
    assert key not in "".join(str(event.fields) for event in world.engine.queries.events(ref.id))
    use = world.engine.attempts.work(ref, world.grant(ref, "use"))
    assert use.inputs == {"answer": f"no, use {key}x"}
    world.engine.answers.give(
        ref.id, f"no, use {key}x", address="ask"
    )  # the same again is no other answer
