"""Signs sessions, so that workers run only what the API accepted.

Write access to Redis or the broker allows to claim steps and to change states. The program and the
place of a session are signed at create with LEADHAND_SECRET, which is never stored in Redis. A
worker verifies the signature before each body.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.domain.references import parse, references_in

#: Prefix of the signed data, so that a signature of one kind is invalid for another.
_SESSION = "leadhand session 1"
#: The same, for the right of a session's bodies to bring commands of their own.
_COMMANDS = "leadhand commands 1"
#: The same, for the document that a session was submitted with.
_REQUEST = "leadhand request 1"
#: The inputs that decide what a step runs, and their fields that are commands or Python.
_WHO = ("doer", "checker")
_FREE = ("command", "callable", "rubric")


class Spec(NamedTuple):
    """The signed facts: they decide which commands run for a session, and where."""

    session: str
    root: str
    #: The hash of the program's document, which the signature thereby covers.
    program: str
    cwd: str
    place: str
    #: The mark of its environment; empty without one.
    environment: str = ""
    #: The mark of its folder's definitions; empty without any.
    definitions: str = ""


def sign(spec: Spec, *, secret: str) -> str:
    """Returns the signature of a session's program, folder and place, for the session's record."""
    return seal(_SESSION, _signed_values(spec), secret=secret)


def is_signed(spec: Spec, signature: str, *, secret: str) -> bool:
    """Whether the signature of a session was made with this secret; False without a secret."""
    return is_valid_seal(_SESSION, _signed_values(spec), signature, secret=secret)


def seal_commands(session: str, root: str, *, secret: str) -> str:
    """Returns a signature that allows the child sessions of a session to contain commands."""
    return seal(_COMMANDS, [session, root], secret=secret)


def is_command_seal(session: str, root: str, signature: str, *, secret: str) -> bool:
    """Whether a signature allows commands in the children of a session (see `seal_commands`)."""
    return is_valid_seal(_COMMANDS, [session, root], signature, secret=secret)


def seal_request(session: str, root: str, request: str, *, secret: str) -> str:
    """Returns a signature of a session's stored document, so that another session may use it."""
    return seal(_REQUEST, [session, root, _digest(request)], secret=secret)


def is_request_seal(session: str, root: str, request: str, signature: str, *, secret: str) -> bool:
    """Whether `signature` is a valid signature by `seal_request` of a session's document."""
    value: JsonValue = [session, root, _digest(request)]
    return is_valid_seal(_REQUEST, value, signature, secret=secret)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _signed_values(spec: Spec) -> JsonValue:
    """The values of a signature; what a session does not have is left out, as before it existed."""
    if spec.definitions:
        return [*spec]
    return [*spec[:-1]] if spec.environment else [*spec[:-2]]


def program_id(document: str) -> str:
    """Returns the id of a program: the hash of its content.

    >>> program_id("{}")
    '44136fa355b3678a1146ad16f7e8649e'
    """
    return hashlib.sha256(document.encode()).hexdigest()[:32]


def seal(kind: str, value: JsonValue, *, secret: str) -> str:
    """Computes the HMAC-SHA256 of a kind and a JSON value."""
    text = json.dumps([kind, value], sort_keys=True, separators=(",", ":"))
    return hmac.digest(secret.encode(), text.encode(), "sha256").hex()


def is_valid_seal(kind: str, value: JsonValue, signature: str, *, secret: str) -> bool:
    """Whether a signature by `seal` of this kind and value is valid; False without a secret."""
    if not secret:
        return False
    return hmac.compare_digest(
        signature.encode(errors="replace"), seal(kind, value, secret=secret).encode()
    )


def command_from_outcome(inputs: Mapping[str, JsonValue]) -> str | None:
    """Returns the input through which an outcome could inject a command; None if none could.

    >>> command_from_outcome({"doer": {"command": "${plan.text}"}, "task": "${plan.text}"})
    'doer.command'
    >>> command_from_outcome({"checker": {"command": "true", "prompt": "${plan.text}"}})
    """
    for who in _WHO:
        given = inputs.get(who)
        if isinstance(given, str) and parse(given):
            return who
        for free in _FREE:
            text = given.get(free) if isinstance(given, dict) else None
            if any(references_in(text)):
                return f"{who}.{free}"
    return None
