# Generated from async_administration.py by scripts/client.py: do not edit.
"""The synchronous client's methods for operators: fleet, store, audit, limits and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, TypeVar

from leadhand.client import requests
from leadhand.client.connection import Connection
from leadhand.client.dashboard.dashboard_calls import DashboardCalls
from leadhand.client.operator import statistics
from leadhand.client.operator.audits import combine_audits
from leadhand.client.requests import Ask
from leadhand.models.documents import Webhook
from leadhand.models.views import (
    AgentView,
    FleetView,
    FsckView,
    Limit,
    NewToken,
    QueueView,
    Quotas,
    StatisticsView,
    StoreView,
    TokenView,
    ToolView,
    WorkerView,
)

T = TypeVar("T")


class Administration(DashboardCalls):
    """A part of the client; see there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def workers(self) -> list[WorkerView]:
        """List the live workers with their running steps."""
        return self._ask(requests.workers())

    def agents(self) -> list[AgentView]:
        """List the agents that workers offer, with the worker hosts (places) where each can run."""
        return self._ask(requests.agents())

    def tools(self) -> list[ToolView]:
        """List the tools that workers offer, with the worker hosts (places) where each can run."""
        return self._ask(requests.tools())

    def queues(self) -> list[QueueView]:
        """List the task queues with counts of messages, ready and running steps, and workers."""
        return self._ask(requests.queues())

    def fleet(self) -> FleetView:
        """Get an overview of the fleet: sessions, queues, workers and overdue work."""
        return self._ask(requests.fleet())

    def statistics(self, first: date | None = None, last: date | None = None) -> StatisticsView:
        """Get counts and costs of the days from `first` to `last` (UTC): the last seven by default.

        Raises RequestInvalid for more than 400 days.
        """
        return self._ask(statistics.of_period(first, last))

    def fsck(self, *, repair: bool = False) -> FsckView:
        """Return where records in Redis and the broker disagree; with `repair`, repair them too.

        All pages are combined; `items` has the first thousand findings.
        """
        found: FsckView | None = None
        while found is None or found.next is not None:
            cursor = found.next if found is not None else None
            found = combine_audits(found, self._ask(requests.fsck(repair=repair, cursor=cursor)))
        return found

    def store(self) -> StoreView:
        """Get the id of the store in Redis, the id that the API remembers, and if they match."""
        return self._ask(requests.store())

    def accept_store(self, *, new: bool = False, replaces: str | None = None) -> StoreView:
        """Accept the data in Redis as the store; with `new` even if it is empty or another store.

        Without `new` only an older state of the same store is accepted; with it any store, also
        an empty one.
        `replaces` is the id that a worker remembers, where that is yet another one.
        """
        return self._ask(requests.accept_store(new=new, replaces=replaces))

    def limits(self) -> list[Limit]:
        """List all limits on concurrent attempts or attempts per minute, sorted by their keys."""
        return self._ask(requests.all_limits())

    def limit(self, key: str) -> Limit:
        """Get the attempt limit of a key such as `model:NAME`. Raises LimitUnknown without one."""
        return self._ask(requests.limit(key))

    def set_limit(
        self,
        key: str,
        *,
        concurrency: int | None = None,
        per_minute: float | None = None,
        seen: Limit | None = None,
    ) -> Limit:
        """Set or replace the limit of a key: how many attempts run at once or start per minute.

        With `seen`, this and `remove_limit` raise LimitChanged if the limit has changed.
        """
        return self._ask(requests.set_limit(key, concurrency, per_minute, seen))

    def remove_limit(self, key: str, *, seen: Limit | None = None) -> None:
        """Remove the limit of a key; with `seen`, raises LimitChanged if it has changed since."""
        self._ask(requests.remove_limit(key, seen))

    def tokens(self) -> list[TokenView]:
        """List all API tokens, newest first, without their secret texts or the API's own token."""
        return self._ask(requests.all_tokens())

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
        return self._ask(
            requests.create_token(name, scopes, expires_s, quotas, webhook, idempotency_key)
        )

    def revoke_token(self, token: str) -> None:
        """Revoke an API token by its id. Raises TokenUnknown if there is no such token."""
        self._ask(requests.revoke_token(token))

    def _ask(self, ask: Ask[T]) -> T:
        return ask.read(self._connection.transport.send(ask.call))
