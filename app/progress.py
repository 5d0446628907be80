"""Pure: what an iteration's work and its refusal come to, to see whether anything moves.

Two iterations with the same signature did the same work, and the same checkers refused it in the
same words, but for what differs each time anyway. The work is known by its digest, or where there
is none by the doer's text. A digest does not see all work (what git ignores, what lies outside the
folder), so what the checkers say of it counts always.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.outcomes import Outcome

#: Durations, times of day and addresses of memory.
_FLEETING = re.compile(
    r"\d+(\.\d+)?\s*(ms|s|sec|secs|seconds|minutes)\b|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?|0x[0-9a-f]+",
    re.IGNORECASE,
)


class Standing(NamedTuple):
    """An iteration's signature, and who refused its work."""

    signature: str
    refused_by: str


def standing_of(inputs: Mapping[str, JsonValue], outcome: Outcome) -> Standing | None:
    """Of a judge's inputs and outcome; None where it did not refuse, or nobody knows the work."""
    digest, text = inputs.get("digest"), str(inputs.get("work") or "").strip()
    if outcome.verdict != "retry" or not (digest or text):
        return None
    value = outcome.value if isinstance(outcome.value, dict) else {}
    checks = value.get("checks")
    refusals = sorted(
        (str(check.get("name")), str(check.get("verdict")), _feedback(check))
        for check in (checks if isinstance(checks, list) else [])
        if isinstance(check, dict) and check.get("verdict") != "accept"
    )
    signed = json.dumps([digest or text, refusals], ensure_ascii=True)
    signature = hashlib.sha256(signed.encode()).hexdigest()[:32]
    return Standing(signature, ", ".join(name for name, *_ in refusals))


def _feedback(check: Mapping[str, JsonValue]) -> str:
    """What a checker said, without what differs each time."""
    return _FLEETING.sub("#", str(check.get("feedback") or "")).strip()
