"""Inline functions for the chaos runs, and the sessions that call them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from app.core.program import Action, Program, RetryPolicy, Step
from tests.chaos.ends import End

#: `hold` keeps the interpreter to itself, as a library in C may do.
_CODE = """
import ctypes
import os
import signal
from pathlib import Path

def hold(seconds: float) -> float:
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return seconds

def die_once(file: str) -> bool:
    try:
        Path(file).touch(exist_ok=False)
    except FileExistsError:
        return True
    os.kill(os.getpid(), signal.SIGKILL)

def hang_once(file: str) -> bool:
    try:
        Path(file).touch(exist_ok=False)
    except FileExistsError:
        return True
    hold(60)

def is_later(iteration: int, least: int = 3) -> bool:
    return iteration >= least
"""
_MODULE = "chaos_functions"
_FUNCTIONS = ("hold", "die_once", "hang_once", "is_later")


def install(folder: Path) -> Path:
    """Write the functions into a folder of tools, with the file that makes them inline."""
    folder.mkdir()
    (folder / f"{_MODULE}.py").write_text(_CODE)
    entries = (
        f'[functions."{_MODULE}:{name}"]\ninline = true\ntimeout_s = 3\n' for name in _FUNCTIONS
    )
    (folder / "tools.toml").write_text("".join(entries))
    return folder


def draw_inline_calls(rng: Random, marks: Path) -> tuple[End, Program]:
    """Calls side by side: most are brief, one ends its process, and one goes past its time."""
    names = [f"c{number}" for number in range(rng.randint(3, 8))]
    calls = [_call(name, "hold", seconds=rng.choice((0, 0.01, 0.3, 1.5))) for name in names]
    calls.append(_call("dies", "die_once", file=f"{marks}.died"))
    if rng.random() < 0.5:
        calls.append(_call("hangs", "hang_once", file=f"{marks}.hung"))
    rng.shuffle(calls)
    begin, after = _call("begin", "hold", seconds=0), _call("after", "hold", seconds=0)
    beside = [call.model_copy(update={"needs": ("begin",)}) for call in calls]
    last = after.model_copy(update={"needs": tuple(call.id for call in calls)})
    return End(iterations=0), Program(name="inline calls", body=(begin, *beside, last))


def draw_inline_checks(rng: Random, doer: dict[str, Any]) -> tuple[End, dict[str, Any]]:
    """A loop that inline functions judge; they accept its third iteration."""
    checkers = [
        {"tool": f"{_MODULE}:is_later", "quick": rng.random() < 0.8, "name": f"check{number}"}
        for number in range(rng.randint(1, 4))
    ]
    document = {
        "kind": "loop",
        "task": "work",
        "doer": doer,
        "baseline": False,
        "checkers": checkers,
    }
    return End(iterations=3), document | {"max_iterations": 4}


def _call(name: str, function: str, **arguments: Any) -> Step:
    inputs: dict[str, Any] = {"tool": f"{_MODULE}:{function}", "arguments": arguments}
    retry = RetryPolicy(retries=3, backoff_s=0.1)
    return Step(id=name, action=Action.TOOL, quick=True, timeout_s=60, inputs=inputs, retry=retry)
