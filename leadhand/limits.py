"""Limits as a client sees them, and the calls that set them and take them away."""

from __future__ import annotations

import json
from urllib.parse import quote

from leadhand.errors import RequestInvalid
from leadhand.etags import limit_etag
from leadhand.problems import Kind, Problem
from leadhand.transport import Call
from leadhand.views import View

PATH = "/v1/limits"
#: What a key begins with: a named agent, a model, a queue, or a key of the user's own.
KINDS = ("agent", "model", "queue", "key")


class LimitView(View):
    """How many attempts with a key may run at once, and begin in a minute."""

    key: str
    concurrency: int | None = None
    per_minute: float | None = None


def setting(
    key: str, *, concurrency: int | None, per_minute: float | None, seen: LimitView | None = None
) -> Call:
    """The call that sets a limit, in place of the one before. Raises RequestInvalid."""
    given = {"concurrency": concurrency, "per_minute": per_minute}
    body = {name: value for name, value in given.items() if value is not None}
    return Call("PUT", path_of(key), headers=_if_match(seen), content=json.dumps(body).encode())


def removal(key: str, *, seen: LimitView | None = None) -> Call:
    """The call that takes a limit away. Raises RequestInvalid."""
    return Call("DELETE", path_of(key), headers=_if_match(seen))


def _if_match(seen: LimitView | None) -> dict[str, str]:
    return {} if seen is None else {"If-Match": limit_etag(seen.concurrency, seen.per_minute)}


def path_of(key: str) -> str:
    """Where a limit is, by its key.

    >>> path_of("model:org/one")
    '/v1/limits/model/org%2Fone'
    """
    kind, _, name = key.partition(":")
    if kind not in KINDS or not name:
        raise RequestInvalid(
            Problem(
                type=Kind.INVALID.uri,
                title="A field is not valid",
                status=422,
                detail=f"{key[:80]!r} is no key of a limit",
                hint="use agent:NAME, model:NAME, queue:NAME or key:NAME",
                field="key",
            ),
            422,
        )
    return f"{PATH}/{kind}/{quote(name, safe='')}"
