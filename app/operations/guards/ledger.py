"""The ledger's entry of a stop: one iteration of the loop of an agent and its gates (pure)."""

from __future__ import annotations

from pydantic import JsonValue

from app.domain.reasons import Reason, ReasonCode, reason_view
from app.history.ledger import FEEDBACK
from app.operations.guards.program import LOOP
from app.redaction import without_keys
from app.truncate import cut
from leadhand.models.guards import OUTPUT, StopReport
from leadhand.models.views import LedgerEntry, StopDecision

_VERDICTS: dict[str, str] = {
    "passed": "accept",
    "failed": "retry",
    "unfinished": "retry",
    "skipped": "skipped",
}


def ledger_entry(
    number: int, report: StopReport, decision: StopDecision, why: str, now_ms: int
) -> str:
    """Builds the ledger entry (JSON record) of an agent's stop: retry if blocked, else accept.

    A stop that is allowed because of a limit is `max_iterations`, for the reason stop_limit.
    """
    entry = LedgerEntry(
        address=f"{LOOP}~1[{number}]",
        loop=LOOP,
        run=1,
        iteration=number,
        verdict=_verdict(decision),
        feedback=cut(decision.text, FEEDBACK),
        reason=reason_view(_reason(decision)),
        work=why,
        checks=_checks(report),
        ended_ms=now_ms,
    )
    unknown = {"cost_usd", "input_tokens", "output_tokens"}
    return entry.model_dump_json(exclude_none=True, exclude=unknown)


def _verdict(decision: StopDecision) -> str:
    if decision.decision == "block":
        return "retry"
    return "max_iterations" if decision.limit_reached else "accept"


def _reason(decision: StopDecision) -> Reason | None:
    """Why the stop was allowed, or that a limit is reached; guidance to continue has none."""
    if decision.limit_reached is not None:
        return Reason(code=ReasonCode.STOP_LIMIT, text=decision.text.partition("\n")[0], at=LOOP)
    if decision.decision == "block":
        return None
    code = ReasonCode.TIMEOUT if decision.template == "unfinished" else ReasonCode.ACCEPTED
    return Reason(code=code, text=decision.text.partition("\n")[0], at=LOOP)


def _checks(report: StopReport) -> list[dict[str, JsonValue]]:
    return [
        {
            "name": gate.name,
            "verdict": _VERDICTS[gate.outcome],
            "outcome": gate.outcome,
            "feedback": cut(without_keys(gate.output), OUTPUT),
            "seconds": gate.seconds,
        }
        for gate in report.gates or ()
    ]
