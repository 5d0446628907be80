"""Builds the ledger entry of an iteration from its judge (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from app.domain.addresses import block_of, iteration_of, path_of, turn_of
from app.domain.outcomes import Outcome
from app.domain.program import Action, Step
from app.domain.records import Grant
from app.history.lineage import home_of
from app.truncate import cut
from leadhand.models.views.result import ChangedByCheckers, ChangedFiles, LedgerEntry

#: Maximum characters of the work and the feedback in an entry.
WORK = 2000
FEEDBACK = 8000
#: The steps of a merge that decide an iteration.
_MERGES = ("land", "after", "apply")


def entry_of(
    step: Step,
    grant: Grant,
    session: str,
    inputs: Mapping[str, JsonValue],
    outcome: Outcome,
) -> str | None:
    """Builds the ledger entry (JSON record) of the loop iteration that a judge ends, else None.

    In a merge, that is the step that lands the work or ends the round, or applies it.
    """
    is_merge = step.action is Action.WORKSPACE and inputs.get("do") in _MERGES
    if not (is_merge or step.action is Action.JUDGE) or outcome.word != "succeeded":
        return None
    block = block_of(grant.address)
    loop = turn_of(block)
    value = outcome.value if isinstance(outcome.value, dict) else {}
    checks = value.get("checks") or []
    assert isinstance(checks, list)
    began = inputs.get("began_ms")
    entry = LedgerEntry(
        address=block,
        loop=path_of(loop),
        run=int(loop.rpartition("~")[2]),
        iteration=iteration_of(grant.address),
        verdict=outcome.verdict or "retry",
        feedback=cut(outcome.text, FEEDBACK),
        reason=outcome.reason,
        doer_session=session,
        doer=_doer(block, grant, inputs, is_merge=is_merge),
        work=str(inputs.get("work") or "")[:WORK],
        checks=[check for check in checks if isinstance(check, dict)],
        stale=outcome.stale,
        recheck=grant.is_recheck,
        decided_by=outcome.decided_by,
        digest=_text(inputs.get("digest")),
        changed=_files(value.get("changed")),
        changed_by_checkers=_changed(value.get("changed_by_checkers")),
        tests_changed=_names(value.get("tests_changed")),
        checker_changed=_names(value.get("checker_changed")),
        left_out=_names(value.get("left_out")),
        no_diff=_text(inputs.get("no_diff")),
        not_compared=str(value["not_compared"]) if "not_compared" in value else None,
        started_ms=began if isinstance(began, int) else outcome.started_ms,
        ended_ms=outcome.ended_ms,
    )
    # The Lua function adds the iteration's usage, which it alone knows.
    used = {"cost_usd", "input_tokens", "output_tokens"}
    return entry.model_dump_json(exclude_none=True, exclude=used)


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _files(facts: JsonValue) -> ChangedFiles | None:
    """What the doers of the loop have changed."""
    return ChangedFiles.model_validate(facts) if facts else None


def _changed(facts: JsonValue) -> ChangedByCheckers | None:
    """What the judge saw in the working folder."""
    return ChangedByCheckers.model_validate(facts) if facts else None


def _names(value: JsonValue) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _doer(block: str, grant: Grant, inputs: Mapping[str, JsonValue], *, is_merge: bool) -> str:
    """The step whose work was judged; in a merge the resolver, which may have had nothing to do."""
    if is_merge:
        return f"{block}/resolve" if inputs.get("do") == "land" else ""
    return f"{home_of(block, 'do', grant.origins)}/do"
