"""Builds the ledger entry of an iteration from its judge (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from app.domain.addresses import block_of, iteration_of, path_of, turn_of
from app.domain.outcomes import Outcome
from app.domain.program import Action, Step
from app.domain.reasons import reason_view
from app.domain.records import Grant
from app.history.lineage import home_of
from app.truncate import cut
from leadhand.models.views import LedgerEntry

#: Maximum characters of the work and the feedback in an entry.
WORK = 2000
FEEDBACK = 8000


def entry_of(
    step: Step,
    grant: Grant,
    session: str,
    inputs: Mapping[str, JsonValue],
    outcome: Outcome,
) -> str | None:
    """The ledger entry (JSON) of the iteration that a judge ends; None for other steps."""
    if step.action is not Action.JUDGE or outcome.word != "succeeded":
        return None
    block = block_of(grant.address)
    loop = turn_of(block)
    value = outcome.value if isinstance(outcome.value, dict) else {}
    checks = value.get("checks", [])
    assert isinstance(checks, list)
    began = inputs.get("began_ms")
    entry = LedgerEntry(
        address=block,
        loop=path_of(loop),
        run=int(loop.rpartition("~")[2]),
        iteration=iteration_of(grant.address),
        verdict=outcome.verdict or "retry",
        feedback=cut(outcome.text, FEEDBACK),
        reason=reason_view(outcome.reason),
        doer_session=session,
        doer=f"{home_of(block, 'do', grant.origins)}/do",
        work=str(inputs.get("work") or "")[:WORK],
        checks=[check for check in checks if isinstance(check, dict)],
        started_ms=began if isinstance(began, int) else outcome.started_ms,
        ended_ms=outcome.ended_ms,
    )
    # The Lua function adds the iteration's usage, which it alone knows.
    used = {"cost_usd", "input_tokens", "output_tokens"}
    return entry.model_dump_json(exclude_none=True, exclude=used)
