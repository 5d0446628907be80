"""Step tokens: capabilities with which a running body acts for its own session only.

A token reads `lhc1.<payload>.<signature>`: the payload is base64url JSON, the signature its
HMAC-SHA256. The token contains the attempt's fence, which the store compares, so it becomes invalid
with the end of the attempt. A work token is for the local steps of a session, whatever its status.
A session-long token has no address: it is valid while its session is
active, suspended while that is stopped, and invalid after its end.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from app.errors import CapabilityRefused

PREFIX = "lhc1."
#: Scopes of a token that outlives attempts: report to the parent, and read the own inbox.
SESSION_SCOPES = ("report", "inbox")
#: The scopes of a program that carries out the local steps of its session and uploads their long
#: results, and the address in its token, which no step can have.
WORK_SCOPES, WORK = ("work", "artifacts"), "@work"
#: Scopes of a doer or checker: read its own session, call exit, start child sessions, share locks
#: and values with its tree, report, and read its inbox.
BODY_SCOPES = ("read", "exit", "spawn", "share", *SESSION_SCOPES)
#: Scopes of a check that looks at the work before the first doer: it decides nothing.
LOOKING_SCOPES = ("read",)


class Caller(NamedTuple):
    """The attempt that a token belongs to, or the session if it outlives attempts."""

    session: str
    address: str
    #: Of a session: the time in ms of its creation, or of its last resume after a failure.
    fence: int
    scopes: tuple[str, ...]

    @property
    def is_of_session(self) -> bool:
        """Whether the token is valid for the whole session, not only for one attempt."""
        return not self.address

    @classmethod
    def of_session(cls, session: str, since: int) -> Caller:
        """Return the caller that a session-long token identifies."""
        return cls(session, "", since, ("read", *SESSION_SCOPES))

    @property
    def is_of_work(self) -> bool:
        """Whether the token is for the local steps of its session."""
        return self.address == WORK

    @classmethod
    def of_work(cls, session: str, created: int) -> Caller:
        """Return the caller that a token for a session's local steps identifies."""
        return cls(session, WORK, created, WORK_SCOPES)


def mint(caller: Caller, *, secret: str) -> str:
    """Creates a signed token for the caller: an attempt of a step, or a whole session."""
    body = json.dumps([caller.session, caller.address, caller.fence, list(caller.scopes)])
    payload = base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")
    return f"{PREFIX}{payload}.{_sign(payload, secret)}"


def verify_any(token: str, secrets: Sequence[str]) -> Caller:
    """Verifies a token with several secrets and returns its caller. Raises CapabilityRefused."""
    for secret in secrets[:-1]:
        with suppress(CapabilityRefused):
            return verify(token, secret=secret)
    return verify(token, secret=secrets[-1] if secrets else "")


def verify(token: str, *, secret: str) -> Caller:
    """Verifies a token's signature and returns its caller. Raises CapabilityRefused if invalid."""
    if not secret or not token.startswith(PREFIX):
        raise CapabilityRefused("it is not a token of this server")
    payload, _, signature = token[len(PREFIX) :].partition(".")
    if not hmac.compare_digest(signature.encode(), _sign(payload, secret).encode()):
        raise CapabilityRefused("its signature is invalid")
    body = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
    session, address, fence, scopes = json.loads(body)
    return Caller(session, address, fence, tuple(scopes))


def _sign(payload: str, secret: str) -> str:
    return hmac.digest(secret.encode(), payload.encode(), "sha256").hex()
