"""An iteration of a doer, two checks and a judge."""

from __future__ import annotations

from tests.engine.driving import (
    step,
)

ITERATION = (
    step("do", "agent"),
    step("check.a", "check", needs=("do",)),
    step("check.b", "check", needs=("do",)),
    step("judge", "judge", needs=("check.a", "check.b")),
)


def iterate(drive, turn: str, verdict: str, iteration: int = 1):
    """One round of the iteration above, with this verdict."""
    block = f"{turn}[{iteration}]"
    drive.do(f"{block}/do")
    drive.do(f"{block}/check.a")
    drive.do(f"{block}/check.b")
    return drive.do(f"{block}/judge", verdict=verdict)
