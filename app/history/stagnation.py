"""Detects stagnation: iterations with the same work and the same refusals (pure).

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

from app.domain.outcomes import Outcome
from leadhand.models.reasons import ReasonCode

#: Durations, times of day and memory addresses.
_FLEETING = re.compile(
    r"\d+(\.\d+)?\s*(ms|s|sec|secs|seconds|minutes)\b|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?|0x[0-9a-f]+",
    re.IGNORECASE,
)


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
