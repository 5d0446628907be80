"""Forks within loops go on in the iteration of each loop around their point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.routing import Join
from app.history.records import Snapshot
from app.sessions.fork import Wish
from app.sessions.forking import KeptOutcomes, copied_warnings
from app.sessions.rewind import Level, Rewind
from leadhand.models.documents import LoopDocument
from tests.engine.driving import Bench, loop, program, step
from tests.engine.world import DONE, World
from tests.flows import ask, flow
from tests.flows import loop as repeated

#: What runs in the second iteration of the outer one of two loops.
INNER = tuple(f"inner~1[{turn}]/{step}" for turn in (1, 2, 3) for step in ("b", "check"))
SECOND_TURN = ("a", *INNER, "c", "end")


def called(label: str) -> dict[str, Any]:
    return {"type": "tool", "tool": "echo", "label": label}


def test_fork_in_a_loop_goes_on_in_its_iteration(bench: Bench) -> None:
    world = World.of(bench)
    document = LoopDocument.model_validate(
        {
            "task": "t",
            "baseline": False,
            "checkers": ["true"],
            "doer": {"command": "true"},
            "max_iterations": 3,
        }
    )
    session = world.engine.submit.document(document).session
    ref = SessionRef(session, session)
    steps = world.engine.queries.steps
    for iteration, verdict in ((1, "retry"), (2, "accept")):
        block = f"loop~1[{iteration}]"
        world.settle(ref, world.grant(ref, f"{block}/do"), Outcome(word="succeeded", text="work"))
        (check,) = [a for r, a in world.hints if r == ref and a.startswith(f"{block}/check")]
        answer = world.settle(ref, world.grant(ref, check))
        judged = Outcome.model_validate({"word": "succeeded", "verdict": verdict})
        world.settle(ref, answer.grants[0], judged)
        world.hints.clear()
    assert world.engine.queries.session(session).status == "completed"
    fork = world.engine.forks.fork(session, Wish("loop[1]/do")).session
    assert [(r.id, a.partition(".")[0]) for r, a in world.hints] == [(fork, "loop~2[1]/check")]
    found = {view.address: view.state for view in steps(fork, limit=99).items}
    assert found["loop~1[1]/do"] == "succeeded"
    assert world.engine.queries.session(fork).counters.cost_usd == 0


@pytest.mark.parametrize(
    ("after", "left"),
    [
        ("outer[2]/inner[2]/check", ["inner~1[3]/b", "inner~1[3]/check", "c", "end"]),
        (
            "outer[2]/inner[2]/b",
            ["inner~1[2]/check", "inner~1[3]/b", "inner~1[3]/check", "c", "end"],
        ),
        ("outer[2]/a", SECOND_TURN[1:]),
        ("outer[1]/c", SECOND_TURN),
    ],
)
def test_fork_in_nested_loops_goes_on_in_the_iteration_of_each(
    bench: Bench, after: str, left: Sequence[str]
) -> None:
    world = World.of(bench)
    inner = repeated(called("b"), ask(label="check"), label="inner")
    outer = repeated(called("a"), inner, called("c"), ask(label="end"), label="outer")
    session = world.engine.submit.document(flow(outer)).session

    def carry_out(id_: str) -> list[str]:
        ref, found = SessionRef(id_, id_), list[str]()
        while world.hints:
            _, address = world.hints.pop(0)
            for grant in world.claim(ref, address).grants:
                found.append(grant.address)
                ends = grant.address.endswith(("inner~1[3]/check", "[2]/end"))
                verdict = "accept" if ends else "retry"
                outcome = {"word": "succeeded", "verdict": verdict}
                is_check = grant.address.endswith(("check", "end"))
                world.settle(ref, grant, Outcome.model_validate(outcome) if is_check else DONE)
        assert world.engine.queries.session(id_).status == "completed"
        return found

    carry_out(session)
    fork = world.engine.forks.fork(session, Wish(after)).session
    done = [address.removeprefix("outer~2[2]/") for address in carry_out(fork)]
    assert done == [*(["outer~2[1]/end"] if after == "outer[1]/c" else []), *left]


def test_fork_within_a_loop_lists_the_warnings_of_earlier_iterations(bench: Bench) -> None:
    do, check = step("do"), step("check")
    body = program(step("first"), loop("turn", do, check), step("last"))
    level = Level("turn", "turn~1", 2, 3, 1, None, {"do": "turn~1[2]"}, (), {})
    rewind = Rewind((Join("turn", ("first",)), Join("last", ())), (level,))
    how = "failed and was passed over: it broke"
    lines = {
        f"first {how}": True, f"last {how}": False, f"do (turn~1[1]/do) {how}": True,
        f"check (turn~1[1]/check) {how}": True, f"do (turn~1[2]/do) {how}": True,
        f"check (turn~1[2]/check) {how}": False, f"do (turn~1[3]/do) {how}": False,
        "the webhook x was given up": False, "turn ended with terminate and was passed over": False,
    }  # fmt: skip
    nothing = SessionRef("00000000", "00000000")
    kept = KeptOutcomes(rewind, Snapshot(World.of(bench).engine.store, nothing))
    assert copied_warnings(body, kept, lines) == [line for line, kept in lines.items() if kept]
