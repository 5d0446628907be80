"""A flow with a loop in a loop, on the real scripts: each turn once, in order, come what may."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action
from app.core.records import Grant
from leadhand.flows.documents import FlowDocument
from leadhand.models.views.step import Event
from tests.engine.world import World

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/flows/flows/nested.json"
#: The outer loop is broken on its second answer, the inner one on its second in each.
TURNS = [
    "chapters~1[1]/plan",
    "chapters~1[1]/pages~1[1]/page",
    "chapters~1[1]/pages~1[1]/chapter-full",
    "chapters~1[1]/pages~1[2]/page",
    "chapters~1[1]/pages~1[2]/chapter-full",
    "chapters~1[1]/book-full",
    "chapters~1[2]/plan",
    "chapters~1[2]/pages~1[1]/page",
    "chapters~1[2]/pages~1[1]/chapter-full",
    "chapters~1[2]/pages~1[2]/page",
    "chapters~1[2]/pages~1[2]/chapter-full",
    "chapters~1[2]/book-full",
]
YES = {TURNS[4], TURNS[10], TURNS[11]}
#: Depth and iteration of each: the page is in two loops, the plan in one.
PLACES = [(1, 1), (2, 1), (2, 1), (2, 2), (2, 2), (1, 1),
          (1, 2), (2, 1), (2, 1), (2, 2), (2, 2), (1, 2)]  # fmt: skip
PAGES = [(1, 2), (2, 2)] * 2
Trouble = Callable[["Drive", str], None]


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


class Drive:
    """Carries a flow out, one step at a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        document = {"kind": "flow", "name": "nested", **json.loads(EXAMPLE.read_text())}
        id_ = world.engine.submit.document(FlowDocument.model_validate(document)).session
        self.ref = SessionRef(id_, id_)

    def next(self) -> str | None:
        """The step that is ready, where the flow has not ended."""
        ready = self.world.engine.store.members(self.ref, "live", 10)
        assert len(ready) <= 1, "a flow takes one step at a time"
        return ready[0] if ready else None

    def carry_out(self, address: str, grant: Grant | None = None) -> str:
        grant = grant or self.world.grant(self.ref, address)
        return self.world.settle(self.ref, grant, self.outcome(grant)).word

    def outcome(self, grant: Grant) -> Outcome:
        step = self.world.engine.attempts.work(self.ref, grant).step
        if step.action is Action.BREAK:
            verdict = "accept" if grant.address in YES else "retry"
            return Outcome.model_validate({"word": "succeeded", "verdict": verdict, "text": "{}"})
        return Outcome(word="succeeded", text=f"said at {grant.address}")

    def run(self, at: int, trouble: Trouble) -> None:
        """To the end, with this trouble before one of its steps."""
        count = 0
        while (address := self.next()) is not None:
            if count == at:
                trouble(self, address)
                address = self.next() or ""
            self.carry_out(address)
            count += 1

    def settled(self) -> list[str]:
        return [e.address or "" for e in self._events() if e.type == "step.settled"]

    def _events(self) -> Iterator[Event]:
        yield from self.world.engine.queries.events(self.ref.id, limit=10_000)

    @property
    def status(self) -> str:
        return self.world.engine.queries.session(self.ref.id).status


def nothing(drive: Drive, address: str) -> None:
    """No trouble."""


def stop_between(drive: Drive, address: str) -> None:
    drive.world.engine.control.apply(drive.ref.id, "stop")
    assert drive.status == "stopped"
    assert drive.world.claim(drive.ref, address).word == "refused"
    drive.world.engine.control.apply(drive.ref.id, "resume")


def stop_in_the_middle(drive: Drive, address: str) -> None:
    engine, grant = drive.world.engine, drive.world.grant(drive.ref, address)
    engine.control.apply(drive.ref.id, "stop")
    assert drive.status == "stopping"
    assert engine.attempts.beat(drive.ref, grant).word == "stop"
    engine.attempts.release(drive.ref, grant, why="stop")
    assert drive.status == "stopped"
    engine.control.apply(drive.ref.id, "resume")


def stop_too_late(drive: Drive, address: str) -> None:
    """The step settles after the stop: the steps that it releases wait for the resume."""
    grant = drive.world.grant(drive.ref, address)
    drive.world.engine.control.apply(drive.ref.id, "stop")
    drive.carry_out(address, grant)
    if drive.status == "stopped":
        drive.world.engine.control.apply(drive.ref.id, "resume")


def kill(drive: Drive, address: str) -> None:
    """The worker is lost; its late outcome is superseded."""
    grant = drive.world.grant(drive.ref, address)
    late = drive.outcome(grant)
    work = drive.world.engine.attempts.work(drive.ref, grant)
    drive.world.later(drive.world.engine.settings.lease_ms + 1)
    answer = drive.world.engine.attempts.settle(work, late, take=[], worker="w")
    assert answer.word == "superseded"


def all_in_order(drive: Drive) -> None:
    assert drive.settled() == TURNS
    assert drive.status == "completed"
    said = drive.world.engine.queries.transcript(drive.ref.id, limit=50, cursor=None).items
    assert [one.address for one in said] == TURNS
    assert [(one.depth, one.iteration) for one in said] == PLACES
    assert [(one.index, one.total) for one in said] == [(1, 3), *PAGES, (3, 3)] * 2
    lines = [drive.world.engine.queries.ledger(drive.ref.id, limit=50, cursor=None).items][0]
    assert [(e.loop, e.iteration, e.verdict) for e in lines] == [
        ("chapters/pages", 1, "retry"), ("chapters/pages", 2, "accept"), ("chapters", 1, "retry"),
        ("chapters/pages", 1, "retry"), ("chapters/pages", 2, "accept"), ("chapters", 2, "accept"),
    ]  # fmt: skip


def test_a_loop_in_a_loop_takes_exactly_these_turns(world: World) -> None:
    drive = Drive(world)
    drive.run(-1, nothing)
    all_in_order(drive)


@pytest.mark.parametrize("trouble", [stop_between, stop_in_the_middle, kill])
@pytest.mark.parametrize("at", range(len(TURNS)))
def test_trouble_at_any_step_changes_none_of_its_turns(
    world: World, at: int, trouble: Trouble
) -> None:
    drive = Drive(world)
    drive.run(at, trouble)
    all_in_order(drive)


@pytest.mark.parametrize("at", range(len(TURNS)))
def test_a_stop_that_comes_too_late_holds_what_follows(world: World, at: int) -> None:
    drive = Drive(world)
    for address in TURNS[:at]:
        drive.carry_out(address)
    stop_too_late(drive, TURNS[at])
    for address in TURNS[at + 1 :]:
        drive.carry_out(address)
    all_in_order(drive)


@pytest.mark.parametrize(
    ("after", "again"),
    [
        ("0/0", "chapters~2[2]/pages~1[1]/page"),
        ("0[1]/1", "chapters~2[1]/book-full"),
        ("0[1]/1[1]/0", "chapters~2[1]/pages~1[1]/chapter-full"),
        ("plan", "chapters~2[2]/pages~1[1]/page"),
    ],
)
def test_a_flow_goes_on_after_a_step_of_its_file(world: World, after: str, again: str) -> None:
    drive = Drive(world)
    for address in TURNS[:9]:
        drive.carry_out(address)
    world.engine.control.apply(drive.ref.id, "stop")
    world.engine.control.apply(drive.ref.id, "resume", after=after)
    assert drive.next() == again
