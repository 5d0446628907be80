"""The workloads as Leadhand programs."""

from __future__ import annotations

from app.domain.program import Action, Loop, Program, Step

#: A file in the working folder: a checker that accepts in the third iteration.
CHECKS = """
def third(iteration):
    return iteration >= 3
"""


def sequence(steps: int, *, quick: bool, queue: str = "") -> Program:
    """Tool steps in a row; those that are not quick take a message each, on this queue."""
    tools = (_tool(f"s{number}", quick=quick) for number in range(1, steps + 1))
    body = tuple(tool.model_copy(update={"queue": queue}) for tool in tools)
    return Program(name="sequence", body=body)


def loop(*, quick: bool) -> Program:
    """A loop of three iterations: a doer, three checks side by side that are functions, a judge."""
    checks = tuple(_check(f"check{number}", quick=quick) for number in (1, 2, 3))
    judge = Step(
        id="judge",
        action=Action.JUDGE,
        needs=tuple(check.id for check in checks),
        inputs={"checks": [{"name": c.id, "outcome": f"${{{c.id}:}}"} for c in checks]},
    )
    body = (_tool("do", quick=quick), *checks, judge)
    return Program(name="loop", body=(Loop(id="loop", body=body, max_iterations=3),))


def fan_out(width: int) -> Program:
    """Steps side by side, and one that joins them."""
    each = _tool("each", quick=True).model_copy(update={"for_each": tuple(range(width))})
    return Program(name="fan-out", body=(each, _tool("after", quick=True)))


def _tool(name: str, *, quick: bool) -> Step:
    return Step(id=name, action=Action.TOOL, quick=quick, inputs={"tool": "noop"})


def _check(name: str, *, quick: bool) -> Step:
    return Step(
        id=name,
        action=Action.CHECK,
        needs=("do",),
        quick=quick,
        inputs={
            "checker": {"callable": "checks:third", "name": name, "quick": True},
            "iteration": "${turn.iteration}",
        },
    )
