"""Signatures of sessions: a worker carries out what the API was asked for, and nothing else.

Whoever can write to Redis, or to the broker, can claim steps and change states. What a session
runs, and where, is signed at create with LEADHAND_SECRET, which Redis never holds; a worker
verifies it before each body.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.references import parse

#: Goes before what is signed, so that no signature of one kind passes for another.
_SESSION = "leadhand session 1"
#: Of a step's inputs, those that say what is run; and what of them goes to a shell or to Python.
_WHO = ("doer", "checker")
_FREE = ("command", "callable", "rubric")


class Spec(NamedTuple):
    """What decides which commands run for a session, and where."""

    session: str
    root: str
    #: The hash of the program's document: whoever signs the one signs the other.
    program: str
    cwd: str
    place: str


def sign(spec: Spec, *, secret: str) -> str:
    """The signature that the session keeps beside what it signs."""
    return seal(_SESSION, list(spec), secret=secret)


def is_ours(spec: Spec, signature: str, *, secret: str) -> bool:
    """Whether somebody who holds the secret signed this; without a secret nothing is ours."""
    return is_sealed(_SESSION, list(spec), signature, secret=secret)


def program_id(document: str) -> str:
    """What a program is called: its content.

    >>> program_id("{}")
    '44136fa355b3678a1146ad16f7e8649e'
    """
    return hashlib.sha256(document.encode()).hexdigest()[:32]


def seal(kind: str, value: JsonValue, *, secret: str) -> str:
    """HMAC-SHA256 over the value as JSON, under the name of its kind."""
    text = json.dumps([kind, value], sort_keys=True, separators=(",", ":"))
    return hmac.digest(secret.encode(), text.encode(), "sha256").hex()


def is_sealed(kind: str, value: JsonValue, signature: str, *, secret: str) -> bool:
    """Whether `seal` gave this signature."""
    if not secret:
        return False
    return hmac.compare_digest(
        signature.encode(errors="replace"), seal(kind, value, secret=secret).encode()
    )


def fetched_order(inputs: Mapping[str, JsonValue]) -> str | None:
    """Where a step would take what it runs from an outcome, which nobody signs; None: nowhere.

    >>> fetched_order({"doer": {"command": "${plan.text}"}, "task": "${plan.text}"})
    'doer.command'
    >>> fetched_order({"checker": {"command": "true", "prompt": "${plan.text}"}})
    """
    for who in _WHO:
        given = inputs.get(who)
        if isinstance(given, str) and parse(given):
            return who
        for free in _FREE:
            text = given.get(free) if isinstance(given, dict) else None
            if isinstance(text, str) and parse(text):
                return f"{who}.{free}"
    return None
