"""The operations of the asynchronous client for people who watch all sessions."""

from __future__ import annotations

from leadhand.client.async_connection import AsyncConnection
from leadhand.client.calls import Call
from leadhand.client.dashboard import requests
from leadhand.client.requests import M, parsed
from leadhand.models.views import AttentionView, ChangeView, Page, SignInLink


class AsyncDashboardCalls:
    """Lists what needs a person and what changed, and signs a browser in."""

    _connection: AsyncConnection

    async def attention(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[AttentionView]:
        """List a page of the sessions that need a person, with the reasons; the latest first."""
        return await self._ask_all(Page[AttentionView], requests.attention(limit, cursor))

    async def changes(
        self, *, after: str | None = None, limit: int | None = None
    ) -> Page[ChangeView]:
        """List a page of the changes of all sessions after an id, oldest first; 5,000 are kept."""
        return await self._ask_all(Page[ChangeView], requests.changes(after, limit))

    async def sign_in_link(self) -> SignInLink:
        """Create a link that signs in to the dashboard once, within a minute."""
        return await self._ask_all(SignInLink, requests.sign_in_link())

    async def _ask_all(self, model: type[M], call: Call) -> M:
        return parsed(model, (await self._connection.transport.send(call)).checked())
