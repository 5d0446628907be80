"""The newest iteration of a flow's loop that no break ended, with the answers of its breaks."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from app.domain.program import Action, Loop, Step
from app.domain.records import TurnRecord
from app.history.ledger import FEEDBACK, WORK
from app.history.points import At, newest
from app.history.snapshot import Snapshot
from app.truncate import cut
from leadhand.models.views.result import LedgerEntry


def nearest_of(loop: Loop, turn: TurnRecord, known: Snapshot) -> LedgerEntry | None:
    """Builds a ledger entry of the newest loop iteration in which a break step ran, otherwise None.

    The breaks appear as its checks. Later iterations may have ended before any break ran.
    """
    names = {node.id: _name(node) for node in loop.body}
    for iteration in range(turn.iteration, 0, -1):
        block = At(f"{loop.id}~{turn.run}", iteration).block
        outcomes = {
            node.id: known.outcome(newest(known, node, block))
            for node in loop.body
            if node.id == loop.result or _ends(node)
        }
        work = outcomes.pop(loop.result, {}).get("text", "") if loop.result else ""
        asked = [_as_check(names[id_], outcome) for id_, outcome in outcomes.items() if outcome]
        if asked:
            return LedgerEntry(
                address=block,
                loop=loop.id,
                run=turn.run,
                iteration=iteration,
                verdict="retry",
                work=str(work)[:WORK],
                checks=asked,
            )
    return None


def _name(node: Step | Loop) -> str:
    """A step's label in the flow's file; without one, its type and its place there."""
    if node.origin is None or node.label not in (None, node.origin.kind):
        return node.label or node.id
    return f"{node.origin.kind} {node.origin.path}"


def _ends(node: Step | Loop) -> bool:
    return isinstance(node, Step) and node.action is Action.BREAK and node.ends == "loop"


def _as_check(name: str, outcome: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """A break's decision, or its error, as a check of the ledger."""
    reason = outcome.get("reason")
    error = reason.get("text") if isinstance(reason, dict) else None
    text = str(outcome.get("text") or error or "")
    return {"name": name, "verdict": outcome.get("verdict"), "feedback": cut(text, FEEDBACK)}
