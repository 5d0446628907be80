# Generated from async_dashboard_calls.py by scripts/client.py: do not edit.
"""The operations of the synchronous client for people who watch all sessions."""

from __future__ import annotations

from leadhand.client.calls import Call
from leadhand.client.connection import Connection
from leadhand.client.dashboard import requests
from leadhand.client.requests import M, parsed
from leadhand.models.views import AttentionView, ChangeView, Page, SignInLink


class DashboardCalls:
    """Lists what needs a person and what changed, and signs a browser in."""

    _connection: Connection

    def attention(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[AttentionView]:
        """List a page of the sessions that need a person, with the reasons; the latest first."""
        return self._ask_all(Page[AttentionView], requests.attention(limit, cursor))

    def changes(self, *, after: str | None = None, limit: int | None = None) -> Page[ChangeView]:
        """List a page of the changes of all sessions after an id, oldest first; 5,000 are kept."""
        return self._ask_all(Page[ChangeView], requests.changes(after, limit))

    def sign_in_link(self) -> SignInLink:
        """Create a link that signs in to the dashboard once, within a minute."""
        return self._ask_all(SignInLink, requests.sign_in_link())

    def _ask_all(self, model: type[M], call: Call) -> M:
        return parsed(model, (self._connection.transport.send(call)).checked())
