"""Pure: the ledger's entry for an iteration, as the step that ends it knows it."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from app.origins import home_of
from app.outcomes import Outcome
from app.program import Action, Step, block_of, iteration_of, path_of, turn_of
from app.records import Grant
from app.views import LedgerEntry

#: How much of a doer's work and of the feedback an entry keeps.
WORK = 2000
FEEDBACK = 8000


def entry_of(
    step: Step,
    grant: Grant,
    session: str,
    inputs: Mapping[str, JsonValue],
    outcome: Outcome,
) -> str | None:
    """What a judge writes down of its iteration (JSON), or None where the step ends none."""
    if step.action is not Action.JUDGE or outcome.word != "succeeded":
        return None
    block = block_of(grant.address)
    loop = turn_of(block)
    value = outcome.value if isinstance(outcome.value, dict) else {}
    checks = value.get("checks", [])
    assert isinstance(checks, list)
    began = inputs.get("began_ms")
    entry = LedgerEntry(
        loop=path_of(loop),
        run=int(loop.rpartition("~")[2]),
        iteration=iteration_of(grant.address),
        verdict=outcome.verdict or "retry",
        feedback=outcome.text[:FEEDBACK],
        reason=outcome.reason,
        doer_session=session,
        doer=f"{home_of(block, 'do', grant.origins)}/do",
        work=str(inputs.get("work") or "")[:WORK],
        checks=[check for check in checks if isinstance(check, dict)],
        started_ms=began if isinstance(began, int) else outcome.started_ms,
        ended_ms=outcome.ended_ms,
    )
    # What the iteration used is known to the script alone, which adds it.
    used = {"cost_usd", "input_tokens", "output_tokens"}
    return entry.model_dump_json(exclude_none=True, exclude=used)
