"""Views of API tokens, their quotas and what they used."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from leadhand.models.views.view import View

Count = Annotated[int, Field(ge=0, le=10**15, strict=True)]


class Quotas(View):
    """The limits of a token's sessions; None means no limit."""

    #: Sessions that have not ended.
    max_sessions: Count | None = None
    #: Steps per day (UTC); running sessions continue, but no new one can start.
    steps_per_day: Count | None = None
    #: Bytes of submitted documents per day (UTC).
    bytes_per_day: Count | None = None


class Spent(View):
    """The usage of a token: live sessions, and the steps and bytes of this day (UTC)."""

    sessions: int = 0
    steps: int = 0
    bytes: int = 0


class TokenWebhook(View):
    """The webhook of a token's sessions, without its secret."""

    host: str
    events: list[str]
    #: Whether a secret signs the requests.
    signed: bool


class TokenView(View):
    """A token without its secret text."""

    id: str
    name: str
    scopes: list[str]
    quotas: Quotas = Quotas()
    spent: Spent = Spent()
    webhook: TokenWebhook | None = None
    created_at: str
    expires_at: str | None = None
    expired: bool = False
    #: To the minute; None if it was never used.
    last_used_at: str | None = None


class NewToken(TokenView):
    """A new token; only this response has its text."""

    token: str
