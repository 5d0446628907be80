"""Capability tokens: what lets a running body speak for its own step, and for nothing else.

`lhc1.<payload>.<signature>`: the payload is base64url JSON, the signature HMAC-SHA256 of it. The
token names the attempt's fence, and the store compares it, so it dies with the attempt.
"""

from __future__ import annotations

import base64
import hmac
import json
from typing import NamedTuple

from app.errors import CapabilityRefused

PREFIX = "lhc1."
#: What a doer or checker may do: read its own session, and end it by intent.
BODY_SCOPES = ("read", "exit")


class Caller(NamedTuple):
    """Who speaks: one attempt at one step."""

    session: str
    address: str
    fence: int
    scopes: tuple[str, ...]


def mint(caller: Caller, *, secret: str) -> str:
    """A token that speaks for this attempt."""
    body = json.dumps([caller.session, caller.address, caller.fence, list(caller.scopes)])
    payload = base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")
    return f"{PREFIX}{payload}.{_sign(payload, secret)}"


def verify(token: str, *, secret: str) -> Caller:
    """Who the token speaks for. Raises CapabilityRefused unless we signed it."""
    if not secret or not token.startswith(PREFIX):
        raise CapabilityRefused("it is not one of ours")
    payload, _, signature = token[len(PREFIX) :].partition(".")
    if not hmac.compare_digest(signature.encode(), _sign(payload, secret).encode()):
        raise CapabilityRefused("its signature does not hold")
    body = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
    session, address, fence, scopes = json.loads(body)
    return Caller(session, address, fence, tuple(scopes))


def _sign(payload: str, secret: str) -> str:
    return hmac.digest(secret.encode(), payload.encode(), "sha256").hex()
