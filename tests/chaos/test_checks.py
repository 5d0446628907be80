"""The checks of the chaos runs name what is broken: each promise is broken once, by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from app import shared
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome, Thread, Usage
from app.core.program import Action
from leadhand.models.views.step import Event
from tests.chaos.promises import of_pace, of_session
from tests.chaos.records import Body, Record, record_of
from tests.engine.locks.sessions import items, work_for
from tests.engine.world import World
from tests.flows import ask, flow, llm, loop
from workers.folders.work_diff import pack_diff

#: One loop of three turns, in one conversation.
FLOW = flow(llm(label="write"), loop(llm(label="mend"), ask(label="good"), label="l"))
STEPS = ["write", "l~1[1]/mend", "l~1[1]/good", "l~1[2]/mend", "l~1[2]/good"]
Found = tuple[Record, list[Body]]
Breaks = Callable[[Record, list[Body]], Found]


@pytest.fixture
def found(store_url: str) -> Found:
    """The session as it should be, with the bodies of its steps."""
    world = World(store_url)
    id_ = world.engine.submit.document(FLOW).session
    ref, bodies = SessionRef(id_, id_), list[Body]()
    for address in STEPS:
        bodies.append(spoken(world, ref, address, bodies))
    assert world.engine.queries.session(id_).status == "completed"
    return record_of(world.engine, ref), bodies


def spoken(world: World, ref: SessionRef, address: str, before: Sequence[Body]) -> Body:
    grant = world.grant(ref, address)
    step = world.engine.attempts.work(ref, grant).step
    good = address != "l~1[1]/good"
    resumed = grant.thread.id or "" if grant.thread else ""
    at = len(before)
    body = Body(
        ref.id, address, grant.fence, 1, f"{ref.id}:{address}", "talk", at, at + 1,
        good, f"said {address}", f"line of {address}", resumed, f"told {address}",
        f"thread {at}", 10_000,
    )  # fmt: skip
    outcome = Outcome(
        word="succeeded", text=body.said, prompt=body.told, usage=Usage(cost_usd=0.01),
        thread=Thread(conversation=str(step.conversation), id=body.thread),
    )  # fmt: skip
    if step.action is Action.BREAK:
        outcome = outcome.model_copy(update={"verdict": "accept" if good else "retry"})
    else:
        outcome = outcome.model_copy(update={"diff": address, "digest": "git:b"})
    patch = pack_diff("git:a", "git:b", f"+{body.line}\n") if outcome.diff else None
    work = world.engine.attempts.work(ref, grant)
    world.engine.attempts.settle(work, outcome, take=(), worker="w", patch=patch, changed=False)
    return body


def test_a_session_as_it_should_be_breaks_nothing(found: Found) -> None:
    assert list(of_session(*found)) == []
    assert found[1][1].resumed == "thread 0"


def other_thread(record: Record, bodies: list[Body]) -> Found:
    """The last one heard nothing of what was said."""
    return record, [*bodies[:-1], bodies[-1]._replace(resumed="")]


def at_once(record: Record, bodies: list[Body]) -> Found:
    """Two bodies of a conversation ran side by side."""
    return record, [bodies[0]._replace(ended=1.5), *bodies[1:]]


def claimed_twice(record: Record, bodies: list[Body]) -> Found:
    """A second step was granted before the first had settled."""
    events = list(record.events)
    settled = next(n for n, event in enumerate(events) if event.type == "step.settled")
    claimed = next(n for n, event in enumerate(events) if _claims(event, STEPS[1]))
    events.insert(claimed, events.pop(settled))
    return replace(record, events=events), bodies


def unsaid(record: Record, bodies: list[Body]) -> Found:
    return replace(record, transcript=record.transcript[:-1]), bodies


def out_of_order(record: Record, bodies: list[Body]) -> Found:
    return replace(record, transcript=record.transcript[::-1]), bodies


def made_up(record: Record, bodies: list[Body]) -> Found:
    first = record.transcript[1].model_copy(update={"text": "never said"})
    return replace(record, transcript=[record.transcript[0], first, *record.transcript[2:]]), bodies


def unowned(record: Record, bodies: list[Body]) -> Found:
    (_, first), *_ = record.differences.items()
    kept = [*record.kept, ("nobody", first.size)]
    return replace(record, differences={**record.differences, "nobody": first}, kept=kept), bodies


def out_of_the_books(record: Record, bodies: list[Body]) -> Found:
    return replace(record, kept=record.kept[1:]), bodies


def not_shown(record: Record, bodies: list[Body]) -> Found:
    return record, [bodies[0]._replace(line="something else"), *bodies[1:]]


def lost(record: Record, bodies: list[Body]) -> Found:
    """A difference that an outcome names is gone."""
    kept = dict(list(record.differences.items())[1:])
    return replace(record, differences=kept, kept=record.kept[1:]), bodies


def paid_twice(record: Record, bodies: list[Body]) -> Found:
    return replace(record, fields={**record.fields, "cost_micros": "60000"}), bodies


def unpaid(record: Record, bodies: list[Body]) -> Found:
    return replace(record, fields={**record.fields, "cost_micros": "40000"}), bodies


def too_early(record: Record, bodies: list[Body]) -> Found:
    """The second iteration's break began before what it needs was over."""
    events = [e for e in record.events if (e.type, e.address) != ("step.settled", STEPS[3])]
    return replace(record, events=events), bodies


TALK = "a conversation goes on from its end, one speaker at a time"
SAID = "the transcript is complete and in order"
SEEN = "a difference is somebody's, and shows it"
SPENT = "what is spent is counted once"


@pytest.mark.parametrize(
    ("breaks", "promise"),
    [
        (other_thread, TALK), (at_once, TALK), (claimed_twice, TALK), (unsaid, SAID),
        (out_of_order, SAID), (made_up, SAID), (unowned, SEEN), (out_of_the_books, SEEN),
        (not_shown, SEEN), (lost, SEEN), (paid_twice, SPENT), (unpaid, SPENT),
        (too_early, "no join fires early or twice"),
    ],
)  # fmt: skip
def test_a_broken_promise_is_named(found: Found, breaks: Breaks, promise: str) -> None:
    assert promise in {broken.promise for broken in of_session(*breaks(*found))}


def test_a_pace_that_is_passed_is_named(store_url: str) -> None:
    world = World(store_url)
    shared.set_limit(world.engine, "key:k", per_minute=60)
    ref = items(world, 12)
    work_for(world, 15)
    records = [record_of(world.engine, ref)]
    assert records[0].status == "completed"
    assert not list(of_pace(records, "key:k", 60))
    assert [broken.promise for broken in of_pace(records, "key:k", 30)] == ["a pace is kept"]


def _claims(event: Event, address: str) -> bool:
    return event.type == "step.claimed" and event.address == address
