"""What was said last in a loop of a flow, whose last step need not have come to its turn."""

from __future__ import annotations

from collections.abc import Iterator

from app.known import KnownOf
from app.positions import At, newest
from app.program import Action, Loop, Program, path_of


def last_said(program: Program, run: str, known: KnownOf) -> str | None:
    """The newest text of an agent in this run of a loop, or in the loops in it.

    The last iteration may have ended before anybody spoke in it: then it is one of an earlier.
    """
    return next(_said(program, run, known), None)


def _said(program: Program, run: str, known: KnownOf) -> Iterator[str]:
    """All of them, newest first."""
    loop, turn = program.node(path_of(run)), known.turn(run)
    if turn is None or not isinstance(loop, Loop):
        return
    for iteration in range(turn.iteration, 0, -1):
        block = At(run, iteration).block
        for node in reversed(loop.body):
            if isinstance(node, Loop):
                yield from _said(program, newest(known, node, block), known)
            elif node.action is Action.AGENT:
                outcome = known.outcome(newest(known, node, block))
                text = outcome.get("text")
                if isinstance(text, str) and text and outcome.get("word") != "skipped":
                    yield text
