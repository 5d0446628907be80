"""API tokens with scopes and quotas; Redis stores only a hash of each secret.

A token reads `lht_<id>_<secret>`: the secret is 32 bytes, derived from random bytes and
LEADHAND_SECRET, and shown once. The stored record is signed with LEADHAND_SECRET, so that write
access to Redis does not allow to create a token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from app.errors import CapabilityRefused
from app.security.egress import destination
from app.security.signatures import is_valid_seal, seal
from app.store.tokens import TokenStore
from leadhand.contract.operation import Scope as Scope
from leadhand.contract.tokens import NewTokenBody
from leadhand.errors import IdempotencyConflict, QuotaPassed, StoreAway, TokenUnknown
from leadhand.models.documents import Webhook
from leadhand.models.views.fleet import NewToken, Quotas, Spent, TokenView, TokenWebhook

PREFIX = "lht_"
#: How long a process caches a token; a revoked one may be accepted until then.
KEEP_S = 3.0
#: Resolution of the time of last use.
USED_S = 60.0
DAY_MS = 24 * 3600 * 1000
#: How long an expired token is still listed.
EXPIRED_MS = 30 * DAY_MS
_KIND = "leadhand token 1"
_ID_BYTES = 6
_SECRET_BYTES = 32
_UNKNOWN = "the token is not known"
EVERYTHING = frozenset(Scope)


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Token(Frozen):
    """The stored record of a token."""

    id: str
    name: str
    scopes: frozenset[Scope]
    #: SHA-256 of the secret.
    digest: str
    quotas: Quotas = Quotas()
    created_ms: int
    expires_ms: int | None = None
    #: The default webhook of the token's sessions.
    webhook: Webhook | None = None
    #: The hash of the Idempotency-Key of its creation.
    mark: str | None = None

    @property
    def owner(self) -> Owner:
        """Return the owner, with quotas, of the sessions that this token submits."""
        return Owner(self.id, self.quotas, self.webhook)


class Owner(NamedTuple):
    """The token that owns a session, with its quotas and webhook."""

    token: str
    quotas: Quotas
    webhook: Webhook | None = None


class _Sealed(Frozen):
    """A token's record with its signature, as stored."""

    token: Token
    signature: str


class _Claim(Frozen):
    """Stored under an Idempotency-Key: the data to create the same token again."""

    id: str
    #: Yields the token's secret together with LEADHAND_SECRET; worthless by itself.
    salt: str
    created_ms: int
    #: The hash of the request.
    body: str


class _Cached(NamedTuple):
    token: Token
    #: On the monotonic clock.
    read_s: float


class Tokens:
    """Creates, verifies and revokes API tokens, except for the operator's token in the settings."""

    def __init__(
        self,
        store: TokenStore,
        *,
        secret: str,
        other: str = "",
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._secret = secret
        #: Records signed with this secret are accepted too, during a rotation.
        self._other = other
        self._clock = clock
        #: The monotonic clock, for the cache.
        self._monotonic = monotonic
        self._cached: dict[str, _Cached] = {}
        self._use_recorded_s: dict[str, float] = {}
        #: Tokens that this process revoked: another thread may be reading one of them.
        self._revoked: set[str] = set()

    def create(
        self,
        name: str,
        scopes: frozenset[Scope],
        *,
        expires_s: int | None = None,
        quotas: Quotas | None = None,
        webhook: Webhook | None = None,
        key: str | None = None,
    ) -> NewToken:
        """Create an API token; the same Idempotency-Key again returns the same one.

        Raises IdempotencyConflict if the key was used for another token.
        """
        wish = NewTokenBody.model_validate({
            "name": name, "scopes": sorted(scopes), "expires_s": expires_s,
            "quotas": quotas or Quotas(), "webhook": webhook,
        })  # fmt: skip
        self._forget_expired()
        new = _Claim(
            id=secrets.token_hex(_ID_BYTES),
            salt=secrets.token_hex(_SECRET_BYTES),
            created_ms=self._now_ms(),
            body=_digest(wish.model_dump_json()),
        )
        return self._create(wish, new) if key is None else self._create_once(wish, new, key)

    def _forget_expired(self) -> None:
        """Delete the tokens that expired long ago."""
        for id_, text in self._store.all().items():
            token = self._open(text, id_)
            until_ms = None if token is None else token.expires_ms
            if until_ms is not None and self._now_ms() - until_ms > EXPIRED_MS:
                self._store.delete(id_)

    def _create_once(self, wish: NewTokenBody, new: _Claim, key: str) -> NewToken:
        mark = hashlib.sha256(key.encode()).hexdigest()
        stored = self._store.claim(mark, new.model_dump_json())
        claim = _Claim.model_validate_json(stored)
        if claim.body != new.body:
            raise IdempotencyConflict(key)
        made = self._create(wish, claim, mark)
        # A concurrent revoke removes the claim first, so a revoked token is not created again.
        if self._store.find_claim(mark) != stored:
            self._store.delete(made.id)
            raise TokenUnknown(made.id)
        return made

    def _create(self, wish: NewTokenBody, claim: _Claim, mark: str | None = None) -> NewToken:
        secret = self._secret_of(claim)
        until_ms = None if wish.expires_s is None else claim.created_ms + wish.expires_s * 1000
        token = Token(
            id=claim.id,
            name=wish.name,
            scopes=frozenset(map(Scope, wish.scopes)),
            digest=_digest(secret),
            quotas=wish.quotas,
            created_ms=claim.created_ms,
            expires_ms=until_ms,
            webhook=wish.webhook,
            mark=mark,
        )
        sealed = _Sealed(token=token, signature=self._seal(token))
        self._store.put(token.id, sealed.model_dump_json())
        text = f"{PREFIX}{token.id}_{secret}"
        return NewToken(**dict(self._view(token, {})), token=text)

    def _secret_of(self, claim: _Claim) -> str:
        """Derives the token's secret from the stored salt and LEADHAND_SECRET."""
        text = f"{_KIND} secret {claim.id} {claim.salt}"
        mixed = hmac.digest(self._secret.encode(), text.encode(), "sha256")
        return base64.urlsafe_b64encode(mixed).rstrip(b"=").decode()

    def recognise(self, text: str) -> Token:
        """Return the token with this text and record its use; else raise CapabilityRefused."""
        id_, _, secret = text.removeprefix(PREFIX).partition("_")
        token = self._token(id_) if text.startswith(PREFIX) else None
        if token is None or not hmac.compare_digest(_digest(secret), token.digest):
            raise CapabilityRefused(_UNKNOWN)
        if self._has_expired(token):
            raise CapabilityRefused("the token has expired")
        self._record_use(token.id)
        return token

    def find(self, id_: str) -> Token | None:
        """Return a token by its id, cached for 3 s; None if unknown, revoked or expired."""
        token = self._token(id_)
        return None if token is None or self._has_expired(token) else token

    def owner(self, id_: str) -> Owner | None:
        """Return the owner and quotas of the token with this id; None if revoked or expired."""
        token = self.find(id_)
        return None if token is None else token.owner

    def views(self) -> list[TokenView]:
        """Return a view of each token with a valid signature, newest first, expired ones too."""
        uses = self._store.last_uses()
        found = [self._open(text, id_) for id_, text in self._store.all().items()]
        tokens = sorted((t for t in found if t), key=lambda t: (t.created_ms, t.id), reverse=True)
        return [self._view(token, uses) for token in tokens]

    def revoke(self, token: str) -> None:
        """Revoke the token with this id; other processes accept it for at most KEEP_S more seconds.

        Raises TokenUnknown.
        """
        held = self._open(self._store.get(token), token)
        if held is not None and held.mark is not None:
            self._store.delete_claim(held.mark)
        was_there = self._store.delete(token)
        self._revoked.add(token)
        self._cached.pop(token, None)
        if not was_there:
            self._revoked.discard(token)  # an unknown id is not kept
            raise TokenUnknown(token)

    def _token(self, id_: str) -> Token | None:
        kept = self._cached.get(id_)
        if kept is not None and self._monotonic() - kept.read_s < KEEP_S:
            return kept.token
        read_s = self._monotonic()
        token = self._open(self._store.get(id_), id_)
        if token is None:
            self._cached.pop(id_, None)
        else:
            self._cached[id_] = _Cached(token, read_s)
        if id_ in self._revoked:  # during the read, or just before
            self._cached.pop(id_, None)
            return None
        return token

    def _open(self, text: str | None, id_: str) -> Token | None:
        """Parse a stored record; None unless its signature and its id are valid."""
        if text is None:
            return None
        try:
            sealed = _Sealed.model_validate_json(text, extra="ignore")
        except ValidationError:
            return None
        ours = any(
            is_valid_seal(_KIND, _fields(sealed.token), sealed.signature, secret=secret)
            for secret in filter(None, (self._secret, self._other))
        )
        return sealed.token if ours and sealed.token.id == id_ else None

    def _seal(self, token: Token) -> str:
        return seal(_KIND, _fields(token), secret=self._secret)

    def _record_use(self, id_: str) -> None:
        now = self._monotonic()
        if now - self._use_recorded_s.get(id_, -USED_S) >= USED_S:
            self._use_recorded_s[id_] = now
            with suppress(StoreAway):
                self._store.record_use(id_, self._now_ms())

    def _view(self, token: Token, uses: Mapping[str, int]) -> TokenView:
        used_ms = uses.get(token.id)
        spent = self._store.usage(token.id, self._now_ms() // DAY_MS)
        return TokenView(
            id=token.id,
            name=token.name,
            scopes=[scope.value for scope in Scope if scope in token.scopes],
            quotas=token.quotas,
            spent=Spent.model_validate(spent),
            webhook=_webhook_view(token.webhook),
            created_at=_iso(token.created_ms),
            expires_at=None if token.expires_ms is None else _iso(token.expires_ms),
            expired=self._has_expired(token),
            last_used_at=None if used_ms is None else _iso(used_ms),
        )

    def _has_expired(self, token: Token) -> bool:
        return token.expires_ms is not None and self._now_ms() >= token.expires_ms

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)


def _fields(token: Token) -> dict[str, JsonValue]:
    """The signed fields of a token; unset newer fields are left out, so that old records verify."""
    without = {name for name in ("webhook", "mark") if getattr(token, name) is None}
    return token.model_dump(mode="json", exclude=without) | {"scopes": sorted(token.scopes)}


def _webhook_view(webhook: Webhook | None) -> TokenWebhook | None:
    if webhook is None:
        return None
    return TokenWebhook(
        host=destination(webhook.url).authority,
        events=list(webhook.events),
        signed=webhook.secret is not None,
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def owner_argument(owner: Owner | None, size: int) -> dict[str, JsonValue] | None:
    """Converts an owner with quotas to an argument of the Lua function `create`; None for None."""
    if owner is None:
        return None
    quotas = owner.quotas
    return {
        "token": owner.token,
        "sessions": quotas.max_sessions,
        "steps": quotas.steps_per_day,
        "bytes": quotas.bytes_per_day,
        "size": size,
    }


def quota_error(owner: Owner, what: str, now_ms: int) -> QuotaPassed:
    """Builds the error for a used-up quota, with the seconds until a daily quota starts again."""
    quotas = owner.quotas
    if what == "sessions":
        return QuotaPassed(what, quotas.max_sessions or 0)
    limit = quotas.steps_per_day if what == "steps" else quotas.bytes_per_day
    return QuotaPassed(what, limit or 0, retry_after_s=-(-(DAY_MS - now_ms % DAY_MS) // 1000))
