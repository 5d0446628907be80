"""Which recorded state of a working folder a fork continues from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from app.compiler.folders import in_own_folder, own_folder_of, without_own_folder
from app.core.folders import OwnFolder, RecordedState
from app.core.program import Action, Loop, Program, Step
from app.core.records import Origin, StepRecord, TurnRecord
from app.core.routing import Join
from app.sessions.fork import with_own_folder
from app.sessions.forking import FolderWork, KeptOutcomes, find_recorded_state, writes_folder
from app.sessions.rewind import Level, Rewind

STATE = RecordedState("5e551045", "abc", "do", 5000)


class Turns:
    """The turns of a session, by their ids."""

    def __init__(self, **origins: Origin) -> None:
        self._origins = {id_.replace("_", "~"): origin for id_, origin in origins.items()}

    def turn(self, id_: str) -> TurnRecord | None:
        return TurnRecord(state="closed", origin=self._origins.get(id_))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"only turns are read, not {name}")


def level(node: str, run: str, iteration: int, **kept: str) -> Level:
    return Level(node, run, iteration, 9, 9, None, kept, (), {})


class One(NamedTuple):
    """What one step has recorded of the folder."""

    address: str
    record: StepRecord
    outcome: dict[str, Any]
    before: str | None


def work(address: str, since: int, ended: int, digest: str | None = None, **more: str) -> One:
    outcome = {"digest": digest, "no_diff": more.get("no_diff")}
    record = StepRecord(state="succeeded", since=since, ended=ended)
    return One(address, record, outcome, more.get("before"))


def together(works: Iterable[One]) -> FolderWork:
    by_address = {one.address: one for one in works}
    return FolderWork(
        {at: one.record for at, one in by_address.items()},
        lambda at: by_address[at].outcome,
        lambda at: by_address[at].before,
    )


NESTED = Rewind(
    (Join("", ()), Join("outer", ()), Join("last", ())),
    (
        level("outer", "outer~2", 3, plan="outer~1[3]"),
        level("inner", "outer~2[3]/inner~1", 2, do="outer~2[3]/inner~1[2]"),
    ),
)


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("first", True), ("first~2", True), ("last", False),
        ("outer~2[2]/do", True), ("outer~2[4]/do", False), ("outer~2[3]/other", False),
        ("outer~1[3]/plan", True), ("outer~1[3]/plan~2", True), ("outer~1[3]/planned", False),
        ("outer~1[1]/do", True), ("outer~1[2]/do", True), ("outer~1[3]/do", False),
        ("outer~2[3]/inner~1[1]/do", True), ("outer~2[3]/inner~1[2]/do", True),
        ("outer~2[3]/inner~1[2]/check", False), ("outer~2[3]/inner~1[3]/do", False),
    ],
)  # fmt: skip
def test_fork_keeps_what_was_done_before_its_point(address: str, kept: bool) -> None:
    turns = Turns(outer_2=Origin(run="outer~1", opened=3))
    assert (address in KeptOutcomes(NESTED, turns)) == kept


def test_state_is_that_after_the_last_kept_step() -> None:
    kept = KeptOutcomes(Rewind((Join("", ()), Join("c", ()))), Turns())
    works = [
        work("b", 20, 40, "git:after-b"), work("a", 10, 30, "git:after-a"),
        work("c", 25, 50, "git:after-c"), work("c~0", 41, 45, "git:later"),
    ]  # fmt: skip
    found = find_recorded_state("s", kept, together(works))
    assert found.state == RecordedState("s", "after-b", "b", 40)
    assert found.ahead == ("c",)
    assert find_recorded_state("s", kept, together(works), since_ms=26).ahead == ()


def test_state_without_a_kept_step_is_that_before_the_first_one() -> None:
    kept = KeptOutcomes(Rewind((Join("", ()), Join("a", ()), Join("b", ()))), Turns())
    later = work("b", 20, 40, "git:after-b")
    changed = work("a", 10, 50, "git:after-a", before="git:before-a")
    found = find_recorded_state("s", kept, together([later, changed]))
    assert found.state == RecordedState("s", "before-a", "a", 10)
    unchanged = work("a", 10, 50, "git:same", no_diff="unchanged")
    assert find_recorded_state("s", kept, together([later, unchanged])).state == RecordedState(
        "s", "same", "a", 10
    )


@pytest.mark.parametrize(
    ("works", "why"),
    [
        ([], "no step has recorded its state"),
        ([work("a", 1, 2, "files:x")], "its state after a was recorded without git"),
        ([work("a", 1, 2, "git:x"), work("tool", 3, 4)], "its state after tool was not recorded"),
        ([work("c", 1, 2, "git:x")], "its state before c was not recorded"),
    ],
)
def test_missing_state_is_explained(works: list[One], why: str) -> None:
    kept = KeptOutcomes(Rewind((Join("", ()), Join("c", ()))), Turns())
    assert find_recorded_state("s", kept, together(works)) == (None, why, ())


def test_agents_tools_and_child_sessions_may_write_in_the_folder() -> None:
    steps = [Step(id=action.value, action=action, folder=True) for action in Action]
    body = (*steps, Step(id="elsewhere", action=Action.AGENT))
    program = Program(body=(Loop(id="l", body=body, max_iterations=1),))
    found = {node.id for path, node in program.walk() if writes_folder(program, path)}
    assert found == {"agent", "tool", "child"}
    assert not writes_folder(program, "gone")


def test_own_folder_comes_off_as_it_went_on() -> None:
    body = (Step(id="workspace", action=Action.TOOL), Step(id="b", action=Action.TOOL))
    plain = Program(body=(*body, Step(id="c", action=Action.TOOL, needs=())))
    own = OwnFolder("/root", "/origin", "sub", ("a",), "make", STATE)
    whole = in_own_folder(plain, own, "title")
    assert own_folder_of(whole, "/root") == own
    assert without_own_folder(whole).body == plain.body
    assert without_own_folder(plain) is plain


def test_forks_steps_wait_for_what_is_not_done() -> None:
    steps = [Step(id=name, action=Action.TOOL, needs=()) for name in ("a", "b")]
    again = (Join("", ("a",)), Join("b", ()))
    own = OwnFolder("/root", "/origin", state=STATE)
    program, rewind = with_own_folder(Program(body=tuple(steps)), Rewind(again), own, "")
    first, a, b, last = program.body
    assert (a.needs, b.needs, last.needs) == ((first.id,), (first.id,), (first.id, "a", "b"))
    assert rewind.again == (Join("", ()), Join(first.id, ()), Join("b", ()), Join(last.id, ("a",)))
