"""API tokens as a client sees them, and the calls that make and revoke them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from leadhand.documents import Webhook
from leadhand.errors import TokenUnknown
from leadhand.problems import Kind, Problem
from leadhand.transport import Call
from leadhand.views import View

PATH = "/v1/tokens"
_ID = re.compile(r"[0-9a-f]{12}")
_BODY: TypeAdapter[dict[str, object]] = TypeAdapter(dict[str, object])


class Quotas(View):
    """How much a token's sessions may use; None: as much as there is."""

    #: Sessions that have not ended.
    max_sessions: int | None = None
    #: In a day (UTC).
    steps_per_day: int | None = None
    #: Of submitted documents, in a day (UTC).
    bytes_per_day: int | None = None


class Spent(View):
    """What a token's sessions use at the time; steps and bytes of this day (UTC)."""

    sessions: int = 0
    steps: int = 0
    bytes: int = 0


class TokenWebhook(View):
    """Who is told of a token's sessions, without what only the receiver may know."""

    host: str
    events: tuple[str, ...] = ()
    #: Whether there is a secret that signs what is told.
    signed: bool = False


class TokenView(View):
    """A token without anything that would open a door."""

    id: str
    name: str
    scopes: tuple[str, ...] = ()
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


def creation(
    name: str,
    scopes: Sequence[str],
    *,
    expires_s: int | None,
    quotas: Quotas | None,
    webhook: Webhook | Mapping[str, Any] | None,
    idempotency_key: str | None,
) -> Call:
    """The call that makes a token; repeated, it is the same token."""
    body: dict[str, object] = {"name": name, "scopes": list(scopes)}
    if expires_s is not None:
        body["expires_s"] = expires_s
    if quotas is not None:
        body["quotas"] = quotas.model_dump(exclude_none=True)
    if webhook is not None:
        body["webhook"] = webhook
    headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
    return Call("POST", PATH, headers=headers, content=_BODY.dump_json(body))


def revocation(token: str) -> Call:
    """The call that revokes a token, by its id. Raises TokenUnknown for no id at all."""
    if not _ID.fullmatch(token):
        raise TokenUnknown(
            Problem(
                type=Kind.TOKEN_UNKNOWN.uri,
                title="No such token",
                status=404,
                detail=f"{token[:40]!r} is no id of a token",
                hint="an id is 12 hexadecimal digits; `leadhand token list` lists those that are",
            ),
            404,
        )
    return Call("DELETE", f"{PATH}/{token}")
