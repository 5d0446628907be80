"""How many stops of stages a session has by default."""

from __future__ import annotations

import pytest

from app.core.program import Action, Loop, OnFail, Program, Step, limits_of
from leadhand.models.documents import Budget

USUAL = Budget(stage_stops=5, stops=15, steps=9)


def stage(name: str, on_fail: OnFail, retries: int = 0) -> Loop:
    judge = Step(id="judge", action=Action.JUDGE)
    return Loop(id=name, body=(judge,), on_fail=on_fail, retries=retries)


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([stage("a", OnFail.STOP)], (5, 15)),
        ([stage("a", OnFail.RETRY, 4)], (5, 15)),
        ([stage("a", OnFail.RETRY, 5)], (6, 15)),
        ([stage("a", OnFail.RETRY, 10), stage("b", OnFail.RETRY, 10)], (11, 21)),
        ([stage(f"p{i}", OnFail.CONTINUE) for i in range(20)], (5, 21)),
        ([stage(f"p{i}", OnFail.STOP, 7) for i in range(20)], (5, 15)),
    ],
)
def test_defaults_leave_what_the_document_itself_grants(stages, expected):
    limits = limits_of(Program(body=tuple(stages)), USUAL, Budget())
    assert (limits["stage_stops"], limits["stops"], limits["steps"]) == (*expected, 9)


def test_what_the_document_says_holds_as_it_is():
    program = Program(body=(stage("a", OnFail.RETRY, 10),))
    limits = limits_of(program, USUAL, Budget(stage_stops=2, stops=3))
    assert (limits["stage_stops"], limits["stops"]) == (2, 3)
