"""Browser sessions of the dashboard, and the links that start them.

A cookie is an opaque random text; the store has its hash, with the token that signed in. Each use
checks that token again, so that revoking it ends the session. The records are signed: write access
to Redis does not allow to sign in.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, ValidationError

from app.errors import CapabilityRefused
from app.security.api_tokens import Token, Tokens
from app.security.signatures import is_valid_seal, seal
from app.store.tokens import BrowserStore

#: How long a sign-in link can be used.
LINK_S = 60
#: How long an unused browser session is kept, and the longest time of one that is used.
IDLE_S = 7 * 24 * 3600
LONGEST_S = 30 * 24 * 3600

_KIND = "leadhand browser session 1"
_BYTES = 32
_OVER = "the sign-in link was used before or is older than a minute"
_SIGNED_OUT = "the browser is not signed in"


class _Record(BaseModel):
    """Who signed in; signed with LEADHAND_SECRET."""

    model_config = ConfigDict(frozen=True)

    #: `link` or `session`, so that one is not taken for the other.
    what: str
    #: The hash of the secret that belongs to this record.
    mark: str
    #: The id of the token; None for the operator.
    token: str | None
    #: A hash of the operator's token, which ends with a new one; empty for other tokens.
    operator: str = ""
    created_ms: int
    signature: str = ""

    @property
    def fields(self) -> list[str]:
        return [
            self.what, self.mark, self.token or "", self.operator, str(self.created_ms),
        ]  # fmt: skip


class BrowserSessions:
    """Makes and redeems sign-in links, and recognises cookies."""

    def __init__(
        self,
        store: BrowserStore,
        tokens: Tokens,
        *,
        secret: str,
        operator: str,
        other: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._secret = secret
        self._other = other
        self._operator = operator
        self._clock = clock

    def make_link(self, token: Token | None) -> str:
        """Store a link that signs in once, as a token or the operator; returns its secret part."""
        text = secrets.token_urlsafe(_BYTES)
        record = self._record("link", text, token)
        self._store.put_link(record.mark, record.model_dump_json(), ttl_s=LINK_S)
        return text

    def redeem(self, text: str) -> str:
        """Exchange a one-time sign-in link for a session cookie. Raises CapabilityRefused."""
        record = self._open("link", text, self._store.take_link(_mark(text)))
        if record is None or self._age_s(record) > LINK_S:
            raise CapabilityRefused(_OVER)
        return self.start(self._token_of(record))

    def start(self, token: Token | None) -> str:
        """Start a browser session for a token (None: the operator) and return its cookie."""
        text = secrets.token_urlsafe(_BYTES)
        record = self._record("session", text, token)
        self._store.put(record.mark, record.model_dump_json(), ttl_s=IDLE_S)
        return text

    def recognise(self, cookie: str) -> Token | None:
        """Return a cookie's token (None: the operator), and extend the session's idle time.

        Raises CapabilityRefused if the cookie is unknown or the session is over.
        """
        found = self._store.get(_mark(cookie), ttl_s=IDLE_S)
        record = self._open("session", cookie, found)
        if record is None or self._age_s(record) > LONGEST_S:
            raise CapabilityRefused(_SIGNED_OUT)
        return self._token_of(record)

    def recognise_token(self, text: str) -> Token | None:
        """Return the API token with this text; None if it is the operator's token."""
        if self._operator and hmac.compare_digest(text.encode(), self._operator.encode()):
            return None
        return self._tokens.recognise(text)

    def end(self, cookie: str) -> None:
        """End the browser session of a cookie."""
        self._store.delete(_mark(cookie))

    def _record(self, what: str, text: str, token: Token | None) -> _Record:
        record = _Record(
            what=what,
            mark=_mark(text),
            token=None if token is None else token.id,
            operator=_mark(self._operator) if token is None else "",
            created_ms=round(self._clock() * 1000),
        )
        signature = seal(_KIND, list(record.fields), secret=self._secret)
        return record.model_copy(update={"signature": signature})

    def _open(self, what: str, text: str, stored: str | None) -> _Record | None:
        """Parse a record; None unless its signature is valid and it belongs to this secret."""
        if stored is None:
            return None
        try:
            record = _Record.model_validate_json(stored)
        except ValidationError:
            return None
        signed = any(
            is_valid_seal(_KIND, list(record.fields), record.signature, secret=secret)
            for secret in filter(None, (self._secret, self._other))
        )
        return record if signed and (record.what, record.mark) == (what, _mark(text)) else None

    def _token_of(self, record: _Record) -> Token | None:
        if record.token is not None:
            token = self._tokens.find(record.token)
            if token is None:
                raise CapabilityRefused("the token that signed in is revoked or has expired")
            return token
        if not self._operator or not hmac.compare_digest(record.operator, _mark(self._operator)):
            raise CapabilityRefused("the operator's token has changed since the sign-in")
        return None

    def _age_s(self, record: _Record) -> float:
        return self._clock() - record.created_ms / 1000


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
