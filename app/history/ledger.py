"""Builds the ledger entry of an iteration from its judge, and detects stagnation.

Two iterations with the same signature did the same work, and the same checkers refused it with the
same feedback, apart from times and memory addresses. The work is identified by its digest, or by
the doer's text if there is none. A digest does not cover all work (ignored files, files outside the
folder), so the feedback always counts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.core.addresses import block_of, iteration_of, path_of, turn_of
from app.core.outcomes import Outcome
from app.core.program import Action, Loop, Step
from app.core.records import Grant, TurnRecord
from app.history.points import At, newest
from app.history.records import Snapshot, home_of
from app.truncate import cut
from leadhand.models.verdicts import ReasonCode
from leadhand.models.views.result import ChangedByCheckers, ChangedFiles, LedgerEntry

#: Maximum characters of the work and the feedback in an entry.
WORK = 2000
FEEDBACK = 8000
#: The steps of a merge that decide an iteration.
_MERGES = ("land", "after", "apply")
#: Durations, times of day and memory addresses.
_FLEETING = re.compile(
    r"\d+(\.\d+)?\s*(ms|s|sec|secs|seconds|minutes)\b|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?|0x[0-9a-f]+",
    re.IGNORECASE,
)


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


class Signature(NamedTuple):
    """An iteration's signature, and the checkers that refused its work."""

    signature: str
    refused_by: str


def signature_of(inputs: Mapping[str, JsonValue], outcome: Outcome) -> Signature | None:
    """Hashes rejected work and its refusals, to detect a loop without progress; else None.

    None if the judge did not refuse the work, or if the work is unknown.
    """
    digest, text = inputs.get("digest"), str(inputs.get("work") or "").strip()
    if outcome.verdict != "retry" or not (digest or text):
        return None
    value = outcome.value if isinstance(outcome.value, dict) else {}
    checks = value.get("checks")
    refusing = [
        check
        for check in (checks if isinstance(checks, list) else [])
        if isinstance(check, dict) and check.get("verdict") != "accept"
    ]
    if refusing and all(map(_timed_out, refusing)):
        return None  # a timeout is no verdict on the work
    refusals = sorted(
        (str(check.get("name")), str(check.get("verdict")), _feedback(check)) for check in refusing
    )
    signed = json.dumps([digest or text, refusals], ensure_ascii=True)
    signature = hashlib.sha256(signed.encode()).hexdigest()[:32]
    return Signature(signature, ", ".join(name for name, *_ in refusals))


def _timed_out(check: Mapping[str, JsonValue]) -> bool:
    reason = check.get("reason")
    return isinstance(reason, dict) and reason.get("code") == ReasonCode.TIMEOUT


def _feedback(check: Mapping[str, JsonValue]) -> str:
    """A checker's feedback without volatile parts."""
    return _FLEETING.sub("#", str(check.get("feedback") or "")).strip()


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
