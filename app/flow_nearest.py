"""Where a loop of a flow stood that no break ended: its newest iteration, and what was answered."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from app.known import KnownOf
from app.ledger import FEEDBACK, WORK
from app.positions import At, newest
from app.program import Action, Loop, Step
from app.records import TurnRecord
from app.views import LedgerEntry


def nearest_of(loop: Loop, turn: TurnRecord, known: KnownOf) -> LedgerEntry | None:
    """The newest iteration in which a break was asked; each is as a checker that did not accept.

    The last iterations may have ended before it came to that.
    """
    for iteration in range(turn.iteration, 0, -1):
        block = At(f"{loop.id}~{turn.run}", iteration).block
        said = {
            node.id: known.outcome(newest(known, node, block))
            for node in loop.body
            if node.id == loop.result or _ends(node)
        }
        work = said.pop(loop.result, {}).get("text", "") if loop.result else ""
        asked = [_as_check(name, outcome) for name, outcome in said.items() if outcome]
        if asked:
            return LedgerEntry(
                loop=loop.id,
                run=turn.run,
                iteration=iteration,
                verdict="retry",
                work=str(work)[:WORK],
                checks=asked,
            )
    return None


def _ends(node: Step | Loop) -> bool:
    return isinstance(node, Step) and node.action is Action.BREAK and node.ends == "loop"


def _as_check(name: str, outcome: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """What a break answered, or why it could not."""
    text = str(outcome.get("text") or "")
    return {"name": name, "verdict": outcome.get("verdict"), "feedback": text[:FEEDBACK]}
