"""The calls about what needs a person, what changed, and signing in (pure)."""

from __future__ import annotations

from leadhand.client.calls import Call, Param


def attention(limit: int | None, cursor: str | None) -> Call:
    """Builds the request that lists a page of the sessions that need a person."""
    return Call("GET", "/v1/attention", params=_given(limit=limit, cursor=cursor))


def changes(after: str | None, limit: int | None) -> Call:
    """Builds the request that lists a page of the changes of all sessions after a change id."""
    return Call("GET", "/v1/events", params=_given(after=after, limit=limit))


def sign_in_link() -> Call:
    """Builds the request that creates a sign-in link; a repeated one creates another link."""
    return Call("POST", "/v1/sign-in-links", content=b"{}")


def _given(**params: Param | None) -> dict[str, Param]:
    return {name: value for name, value in params.items() if value is not None}
