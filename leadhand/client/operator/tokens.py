"""The calls that create and revoke API tokens."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from leadhand.client.calls import Call
from leadhand.errors import local_error
from leadhand.models.documents import Webhook
from leadhand.models.problems import Kind
from leadhand.models.views import Quotas

PATH = "/v1/tokens"
_ID = re.compile(r"[0-9a-f]{12}")
_BODY: TypeAdapter[dict[str, object]] = TypeAdapter(dict[str, object])


def creation(
    name: str,
    scopes: Sequence[str],
    *,
    expires_s: int | None,
    quotas: Quotas | None,
    webhook: Webhook | Mapping[str, Any] | None,
    idempotency_key: str | None,
) -> Call:
    """Builds the request that creates an API token; the same key again returns the same one."""
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
    """Builds the request that revokes an API token. Raises TokenUnknown for an invalid id."""
    if not _ID.fullmatch(token):
        raise local_error(
            Kind.TOKEN_UNKNOWN,
            f"{token[:40]!r} is not a token id",
            hint="an id is 12 hexadecimal digits; `leadhand token list` lists the tokens",
        )
    return Call("DELETE", f"{PATH}/{token}")
