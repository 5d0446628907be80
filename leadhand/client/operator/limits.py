"""The calls that set and remove limits."""

from __future__ import annotations

import json
from urllib.parse import quote

from leadhand.client.calls import Call
from leadhand.errors import local_error
from leadhand.models.etags import limit_etag
from leadhand.models.problems import Kind
from leadhand.models.views import Limit

PATH = "/v1/limits"
#: The prefixes of keys: a named agent, a model, a queue, or a user's own key.
KINDS = ("agent", "model", "queue", "key")


def setting(
    key: str, *, concurrency: int | None, per_minute: float | None, seen: Limit | None = None
) -> Call:
    """Builds the request that sets or replaces a key's limit, if unchanged since `seen`.

    Raises RequestInvalid for a malformed key.
    """
    given = {"concurrency": concurrency, "per_minute": per_minute}
    body = {name: value for name, value in given.items() if value is not None}
    return Call("PUT", path_of(key), headers=_if_match(seen), content=json.dumps(body).encode())


def removal(key: str, *, seen: Limit | None = None) -> Call:
    """Builds the request that removes a key's limit, if unchanged since `seen`.

    Raises RequestInvalid for a malformed key.
    """
    return Call("DELETE", path_of(key), headers=_if_match(seen))


def _if_match(seen: Limit | None) -> dict[str, str]:
    return {} if seen is None else {"If-Match": limit_etag(seen.concurrency, seen.per_minute)}


def path_of(key: str) -> str:
    """Returns the API path of the limit of a key (`model:NAME`). Raises RequestInvalid.

    >>> path_of("model:org/one")
    '/v1/limits/model/org%2Fone'
    """
    kind, _, name = key.partition(":")
    if kind not in KINDS or not name:
        raise local_error(
            Kind.INVALID,
            f"{key[:80]!r} is not the key of a limit",
            hint="use agent:NAME, model:NAME, queue:NAME or key:NAME",
            field="key",
        )
    return f"{PATH}/{kind}/{quote(name, safe='')}"
