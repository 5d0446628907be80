"""API tokens: who holds one, what it opens and how much of it; Redis keeps a hash of its secret.

`lht_<id>_<secret>`: the secret is 32 bytes, made of random ones and of LEADHAND_SECRET, and shown
once. What Redis keeps of a token is sealed with LEADHAND_SECRET, so that nobody gets in by writing
one there.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from app.addresses import destination
from app.errors import CapabilityRefused, IdempotencyConflict, StoreAway, TokenUnknown
from app.signing import is_sealed, seal
from leadhand.documents import Webhook

PREFIX = "lht_"
#: For so long a process goes by what it read of a token: a revoked one may be let in until then.
KEEP_S = 3.0
#: How exact the time of last use is.
USED_S = 60.0
DAY_MS = 24 * 3600 * 1000
#: For so long a token that has expired is still listed.
EXPIRED_MS = 30 * DAY_MS

_KIND = "leadhand token 1"
_ID_BYTES = 6
_SECRET_BYTES = 32
_UNKNOWN = "the token is not known here"


class Scope(StrEnum):
    #: Look at sessions, events, workers, queues and limits.
    READ = "read"
    #: Start sessions of named agents.
    SUBMIT = "submit"
    #: Stop, resume, exit, abort, move and delete sessions.
    CONTROL = "control"
    #: Bring commands and callables of one's own: the right to run anything on a worker.
    EXEC_FREE = "exec:free"
    #: Make and revoke tokens, set limits, and with that: everything.
    ADMIN = "admin"


EVERYTHING = frozenset(Scope)


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Quotas(Frozen):
    """How much a token's sessions may use; None: as much as there is."""

    #: Sessions that have not ended.
    max_sessions: int | None = None
    #: Steps carried out in a day (UTC); a session under way is not cut off, but none can follow.
    steps_per_day: int | None = None
    #: Bytes of submitted documents in a day (UTC).
    bytes_per_day: int | None = None


class Token(Frozen):
    """A token, as far as Redis knows it."""

    id: str
    name: str
    scopes: frozenset[Scope]
    #: SHA-256 of the secret.
    digest: str
    quotas: Quotas = Quotas()
    created_ms: int
    expires_ms: int | None = None
    #: Who is told of sessions whose document names nobody.
    webhook: Webhook | None = None
    #: The hash of the Idempotency-Key that it was made with.
    mark: str | None = None

    @property
    def owner(self) -> Owner:
        return Owner(self.id, self.quotas, self.webhook)


class Owner(NamedTuple):
    """Whose a session is, and how much of the like there may be."""

    token: str
    quotas: Quotas
    webhook: Webhook | None = None


class Spent(Frozen):
    """What a token's sessions use at the time; steps and bytes of this day (UTC)."""

    sessions: int = 0
    steps: int = 0
    bytes: int = 0


class TokenWebhook(Frozen):
    """Who is told of a token's sessions, without what only the receiver may know."""

    host: str
    events: list[str]
    #: Whether there is a secret that signs what is told.
    signed: bool


class TokenView(Frozen):
    """A token without anything that would open a door."""

    id: str
    name: str
    scopes: list[Scope]
    quotas: Quotas = Quotas()
    spent: Spent = Spent()
    webhook: TokenWebhook | None = None
    created_at: str
    expires_at: str | None = None
    expired: bool = False
    #: To the minute; None where it was never used.
    last_used_at: str | None = None


class NewToken(TokenView):
    """A token just made; its text is told this once."""

    token: str


class Shelf(Protocol):
    """Where tokens are kept."""

    def put(self, token: str, text: str) -> None: ...

    def get(self, token: str) -> str | None: ...

    def all(self) -> Mapping[str, str]: ...

    def drop(self, token: str) -> bool: ...

    def claim(self, mark: str, text: str) -> str: ...

    def claimed(self, mark: str) -> str | None: ...

    def unclaim(self, mark: str) -> None: ...

    def used(self, token: str, at_ms: int) -> None: ...

    def uses(self) -> Mapping[str, int]: ...

    def spent(self, token: str, day: int) -> Mapping[str, int]: ...


class _Sealed(Frozen):
    """What lies on the shelf."""

    token: Token
    signature: str


class _Claim(Frozen):
    """What stands behind an Idempotency-Key: all that it takes to make the same token again."""

    id: str
    #: With our own secret it is the token's; by itself it opens nothing.
    salt: str
    created_ms: int
    #: The hash of what was asked for.
    body: str


class Wish(Frozen):
    """The token that somebody asks for."""

    name: str
    scopes: frozenset[Scope]
    expires_s: int | None = None
    quotas: Quotas = Quotas()
    webhook: Webhook | None = None

    @property
    def digest(self) -> str:
        text = json.dumps(self.model_dump(mode="json") | {"scopes": sorted(self.scopes)})
        return hashlib.sha256(text.encode()).hexdigest()


class _Kept(NamedTuple):
    token: Token
    #: On the monotonic clock.
    read_s: float


class Tokens:
    """All tokens but the operator's own, which is a setting."""

    def __init__(
        self,
        shelf: Shelf,
        *,
        secret: str,
        clock: Callable[[], float] = time.time,
        passed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shelf = shelf
        self._secret = secret
        self._clock = clock
        #: Seconds that only ever grow, for what is kept for a while.
        self._passed = passed
        self._kept: dict[str, _Kept] = {}
        self._told: dict[str, float] = {}
        #: Those that this process revoked: another thread may be reading one of them just now.
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
        """Make a token; its text can be had again by nobody but who asks with the same key.

        Raises IdempotencyConflict where the key was used for another token.
        """
        wish = Wish(
            name=name, scopes=scopes, expires_s=expires_s, quotas=quotas or Quotas(),
            webhook=webhook,
        )  # fmt: skip
        self._forget_expired()
        new = _Claim(
            id=secrets.token_hex(_ID_BYTES),
            salt=secrets.token_hex(_SECRET_BYTES),
            created_ms=self._now_ms(),
            body=wish.digest,
        )
        return self._made(wish, new) if key is None else self._made_once(wish, new, key)

    def _forget_expired(self) -> None:
        """Nobody looks for a token whose time has long been over."""
        for id_, text in self._shelf.all().items():
            token = self._opened(text, id_)
            until_ms = None if token is None else token.expires_ms
            if until_ms is not None and self._now_ms() - until_ms > EXPIRED_MS:
                self._shelf.drop(id_)

    def _made_once(self, wish: Wish, new: _Claim, key: str) -> NewToken:
        mark = hashlib.sha256(key.encode()).hexdigest()
        standing = self._shelf.claim(mark, new.model_dump_json())
        claim = _Claim.model_validate_json(standing)
        if claim.body != wish.digest:
            raise IdempotencyConflict(key)
        made = self._made(wish, claim, mark)
        # Whoever revokes it takes the claim first: a token is not made anew behind his back.
        if self._shelf.claimed(mark) != standing:
            self._shelf.drop(made.id)
            raise TokenUnknown(made.id)
        return made

    def _made(self, wish: Wish, claim: _Claim, mark: str | None = None) -> NewToken:
        secret = self._secret_of(claim)
        until_ms = None if wish.expires_s is None else claim.created_ms + wish.expires_s * 1000
        token = Token(
            id=claim.id,
            name=wish.name,
            scopes=wish.scopes,
            digest=_digest(secret),
            quotas=wish.quotas,
            created_ms=claim.created_ms,
            expires_ms=until_ms,
            webhook=wish.webhook,
            mark=mark,
        )
        sealed = _Sealed(token=token, signature=self._seal(token))
        self._shelf.put(token.id, sealed.model_dump_json())
        text = f"{PREFIX}{token.id}_{secret}"
        return NewToken(**dict(self._view(token, {})), token=text)

    def _secret_of(self, claim: _Claim) -> str:
        """What opens doors: of random bytes and our own secret, so that Redis does not hold it."""
        text = f"{_KIND} secret {claim.id} {claim.salt}"
        mixed = hmac.digest(self._secret.encode(), text.encode(), "sha256")
        return base64.urlsafe_b64encode(mixed).rstrip(b"=").decode()

    def recognise(self, text: str) -> Token:
        """Whose token this is. Raises CapabilityRefused for one that is none, or no longer."""
        id_, _, secret = text.removeprefix(PREFIX).partition("_")
        token = self._token(id_) if text.startswith(PREFIX) else None
        if token is None or not hmac.compare_digest(_digest(secret), token.digest):
            raise CapabilityRefused(_UNKNOWN)
        if self._has_expired(token):
            raise CapabilityRefused("the token has expired")
        self._tell_of_use(token.id)
        return token

    def views(self) -> list[TokenView]:
        """All tokens, the newest first; those that were not made here are none."""
        uses = self._shelf.uses()
        found = [self._opened(text, id_) for id_, text in self._shelf.all().items()]
        tokens = sorted((t for t in found if t), key=lambda t: (t.created_ms, t.id), reverse=True)
        return [self._view(token, uses) for token in tokens]

    def revoke(self, token: str) -> None:
        """Let nobody in with it any more: here at once, elsewhere within KEEP_S seconds.

        Raises TokenUnknown.
        """
        held = self._opened(self._shelf.get(token), token)
        if held is not None and held.mark is not None:
            self._shelf.unclaim(held.mark)
        was_there = self._shelf.drop(token)
        self._revoked.add(token)
        self._kept.pop(token, None)
        if not was_there:
            self._revoked.discard(token)  # no id of ours: it is not remembered
            raise TokenUnknown(token)

    def _token(self, id_: str) -> Token | None:
        kept = self._kept.get(id_)
        if kept is not None and self._passed() - kept.read_s < KEEP_S:
            return kept.token
        read_s = self._passed()
        token = self._opened(self._shelf.get(id_), id_)
        if token is None:
            self._kept.pop(id_, None)
        else:
            self._kept[id_] = _Kept(token, read_s)
        if id_ in self._revoked:  # since we read it, or just before
            self._kept.pop(id_, None)
            return None
        return token

    def _opened(self, text: str | None, id_: str) -> Token | None:
        """What the shelf holds, where we put it there and under this very id."""
        if text is None:
            return None
        try:
            sealed = _Sealed.model_validate_json(text)
        except ValidationError:
            return None
        ours = is_sealed(_KIND, _fields(sealed.token), sealed.signature, secret=self._secret)
        return sealed.token if ours and sealed.token.id == id_ else None

    def _seal(self, token: Token) -> str:
        return seal(_KIND, _fields(token), secret=self._secret)

    def _tell_of_use(self, id_: str) -> None:
        now = self._passed()
        if now - self._told.get(id_, -USED_S) >= USED_S:
            self._told[id_] = now
            with suppress(StoreAway):
                self._shelf.used(id_, self._now_ms())

    def _view(self, token: Token, uses: Mapping[str, int]) -> TokenView:
        used_ms = uses.get(token.id)
        spent = self._shelf.spent(token.id, self._now_ms() // DAY_MS)
        return TokenView(
            id=token.id,
            name=token.name,
            scopes=[scope for scope in Scope if scope in token.scopes],
            quotas=token.quotas,
            spent=Spent(**spent),
            webhook=_shown(token.webhook),
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
    """What of a token is sealed; what it has none of is left out, as before there was any."""
    without = {name for name in ("webhook", "mark") if getattr(token, name) is None}
    return token.model_dump(mode="json", exclude=without) | {"scopes": sorted(token.scopes)}


def _shown(webhook: Webhook | None) -> TokenWebhook | None:
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
