"""The result text of a flow's loop: the newest text of an agent in it."""

from __future__ import annotations

from collections.abc import Iterator

from app.domain.addresses import path_of
from app.domain.program import Action, Loop, Program
from app.history.points import At, newest
from app.history.snapshot import Snapshot


def newest_text(program: Program, run: str, known: Snapshot) -> str | None:
    """Returns an agent's newest text in a run of a loop, inner loops included; None without any.

    It may come from an earlier iteration: the last one may have ended before any agent answered.
    """
    return next(_texts(program, run, known), None)


def _texts(program: Program, run: str, known: Snapshot) -> Iterator[str]:
    """Yields all texts of agents, newest first."""
    loop, turn = program.node(path_of(run)), known.turn(run)
    if turn is None or not isinstance(loop, Loop):
        return
    for iteration in range(turn.iteration, 0, -1):
        block = At(run, iteration).block
        for node in reversed(loop.body):
            if isinstance(node, Loop):
                yield from _texts(program, newest(known, node, block), known)
            elif node.action is Action.AGENT:
                outcome = known.outcome(newest(known, node, block))
                text = outcome.get("text")
                if isinstance(text, str) and text and outcome.get("word") != "skipped":
                    yield text
