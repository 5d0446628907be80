"""The operations on API tokens, and the sign-in to the dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from leadhand.contract.calls import Answer, Ask, Noun, Op
from leadhand.contract.operation import GONE, Body, NoBody, NoQuery, Operation, Scope, replies
from leadhand.contract.requests import calls, request
from leadhand.errors import TokenUnknown
from leadhand.models.documents import Webhook
from leadhand.models.views.explain import SignInLink
from leadhand.models.views.fleet import NewToken, Quotas, TokenView
from leadhand.models.views.view import Page

#: Maximum lifetime of a token: ten years.
LONGEST_S = 10 * 365 * 24 * 3600


class NewTokenBody(Body):
    """The token to create."""

    name: Annotated[str, Field(min_length=1, max_length=120)]
    scopes: Annotated[
        list[Literal["read", "submit", "control", "exec:free", "admin"]],
        Field(min_length=1, max_length=20),
    ]
    #: Lifetime in seconds; without it the token is valid until it is revoked.
    expires_s: Annotated[int, Field(ge=1, le=LONGEST_S)] | None = None
    quotas: Quotas = Quotas()
    #: The default webhook of its sessions, unless their documents name one.
    webhook: Webhook | None = None


CREATE = Operation[NewTokenBody](
    name="tokens.create", method="POST", path="/v1/tokens",
    summary="Create a token",
    responses=(replies(NewToken, "The token; its text is returned only once.", 201),),
    scope=Scope.ADMIN,
    body=NewTokenBody, body_required=True, headers=("Idempotency-Key",), makes="token",
)  # fmt: skip


LIST = Operation[NoQuery](
    name="tokens.listed", method="GET", path="/v1/tokens",
    summary="List the tokens",
    responses=(replies(Page[TokenView], "All tokens, without their secrets."),),
    scope=Scope.ADMIN,
)  # fmt: skip


REVOKE = Operation[NoQuery](
    name="tokens.revoke", method="DELETE", path="/v1/tokens/{token}",
    summary="Revoke a token",
    responses=(GONE,),
    scope=Scope.ADMIN,
)  # fmt: skip


SIGN_IN_LINK = Operation[NoBody](
    name="sign_in.link", method="POST", path="/v1/sign-in-links",
    summary="Make a link that opens the dashboard once, signed in",
    responses=(replies(SignInLink, "The link.", 201),),
    scope=Scope.READ,  # the browser can do no more than the token
    body=NoBody,
)  # fmt: skip


class Tokens(Noun):
    """Creates and revokes tokens, and signs in to the dashboard."""

    @calls(LIST)
    def tokens(self) -> list[TokenView]:
        """List all API tokens, newest first, without their secret texts or the API's own token."""

    @calls(CREATE)
    def create_token(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        expires_s: int | None = None,
        quotas: Quotas | None = None,
        webhook: Webhook | Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> NewToken:
        """Create an API token and return it; only this result contains its secret text.

        The webhook is called for its sessions, unless their documents name their own. The same key
        with the same arguments returns the same token, unless that is revoked.
        """

    @Op
    def revoke_token(self, token: str) -> Ask[None]:
        """Revoke an API token by its id. Raises TokenUnknown if there is no such token."""
        return Ask(request(REVOKE, token), _read_revoked)

    @calls(SIGN_IN_LINK)
    def sign_in_link(self) -> SignInLink:
        """Create a link that signs in to the dashboard once, within a minute."""


def _read_revoked(answer: Answer) -> None:
    try:
        answer.checked()
    except TokenUnknown:
        if not answer.repeated:
            raise
