"""The workloads as Leadhand programs."""

from __future__ import annotations

from app.core.program import Action, Loop, Program, Step

#: A file in the working folder: a checker that accepts in the third iteration.
CHECKS = """
def third(iteration):
    return iteration >= 3
"""


#: Two files in a folder of tools. The functions of one run in processes of their own, and those of
#: the other, as its `tools.toml` says, in the worker's.
TOOLS = """
def echo(number: int) -> dict:
    return {"number": number}

def noop() -> None:
    return None

def third(iteration: int) -> bool:
    return iteration >= 3
"""
SAFE, INLINE = "safe", "inline"
INLINE_TOOLS = f"""
[functions."{INLINE}:echo"]
inline = true
[functions."{INLINE}:noop"]
inline = true
[functions."{INLINE}:third"]
inline = true
"""


def sequence(steps: int, *, quick: bool, queue: str = "") -> Program:
    """Tool steps in a row; those that are not quick take a message each, on this queue."""
    tools = (_tool(f"s{number}", quick=quick) for number in range(1, steps + 1))
    body = tuple(tool.model_copy(update={"queue": queue}) for tool in tools)
    return Program(name="sequence", body=body)


def loop(*, quick: bool, module: str = "") -> Program:
    """A loop of three iterations: a doer, three checks side by side that are functions, a judge.

    The functions are those of a module in the folder of tools, or of the working folder.
    """
    checks = tuple(_check(f"check{number}", module, quick=quick) for number in (1, 2, 3))
    judge = Step(
        id="judge",
        action=Action.JUDGE,
        needs=tuple(check.id for check in checks),
        inputs={"checks": [{"name": c.id, "outcome": f"${{{c.id}:}}"} for c in checks]},
    )
    do = _tool("do", quick=quick, tool=f"{module}:noop" if module else "noop")
    body = (do, *checks, judge)
    return Program(name="loop", body=(Loop(id="loop", body=body, max_iterations=3),))


def fan_out(width: int) -> Program:
    """Steps side by side, and one that joins them."""
    each = _tool("each", quick=True).model_copy(update={"for_each": tuple(range(width))})
    return Program(name="fan-out", body=(each, _tool("after", quick=True)))


def _tool(name: str, *, quick: bool, tool: str = "noop") -> Step:
    inputs = {"tool": tool, "quick": quick}
    return Step(id=name, action=Action.TOOL, quick=quick, inputs=inputs)


def _check(name: str, module: str, *, quick: bool) -> Step:
    function = {"tool": f"{module}:third"} if module else {"callable": "checks:third"}
    return Step(
        id=name,
        action=Action.CHECK,
        needs=("do",),
        quick=quick,
        inputs={
            "checker": {**function, "name": name, "quick": True},
            "iteration": "${turn.iteration}",
        },
    )
