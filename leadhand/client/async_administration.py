"""The asynchronous client's methods for operators: fleet, store, audit, limits and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, TypeVar

from leadhand.client import requests
from leadhand.client.async_connection import AsyncConnection
from leadhand.client.dashboard.async_dashboard_calls import AsyncDashboardCalls
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


class AsyncAdministration(AsyncDashboardCalls):
    """A part of the client; see there."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def workers(self) -> list[WorkerView]:
        """List the live workers with their running steps."""
        return await self._ask(requests.workers())

    async def agents(self) -> list[AgentView]:
        """List the agents that workers offer, with the worker hosts (places) where each can run."""
        return await self._ask(requests.agents())

    async def tools(self) -> list[ToolView]:
        """List the tools that workers offer, with the worker hosts (places) where each can run."""
        return await self._ask(requests.tools())

    async def queues(self) -> list[QueueView]:
        """List the task queues with counts of messages, ready and running steps, and workers."""
        return await self._ask(requests.queues())

    async def fleet(self) -> FleetView:
        """Get an overview of the fleet: sessions, queues, workers and overdue work."""
        return await self._ask(requests.fleet())

    async def statistics(
        self, first: date | None = None, last: date | None = None
    ) -> StatisticsView:
        """Get counts and costs of the days from `first` to `last` (UTC): the last seven by default.

        Raises RequestInvalid for more than 400 days.
        """
        return await self._ask(statistics.of_period(first, last))

    async def fsck(self, *, repair: bool = False) -> FsckView:
        """Return where records in Redis and the broker disagree; with `repair`, repair them too.

        All pages are combined; `items` has the first thousand findings.
        """
        found: FsckView | None = None
        while found is None or found.next is not None:
            cursor = found.next if found is not None else None
            found = combine_audits(
                found, await self._ask(requests.fsck(repair=repair, cursor=cursor))
            )
        return found

    async def store(self) -> StoreView:
        """Get the id of the store in Redis, the id that the API remembers, and if they match."""
        return await self._ask(requests.store())

    async def accept_store(self, *, new: bool = False, replaces: str | None = None) -> StoreView:
        """Accept the data in Redis as the store; with `new` even if it is empty or another store.

        Without `new` only an older state of the same store is accepted; with it any store, also
        an empty one.
        `replaces` is the id that a worker remembers, where that is yet another one.
        """
        return await self._ask(requests.accept_store(new=new, replaces=replaces))

    async def limits(self) -> list[Limit]:
        """List all limits on concurrent attempts or attempts per minute, sorted by their keys."""
        return await self._ask(requests.all_limits())

    async def limit(self, key: str) -> Limit:
        """Get the attempt limit of a key such as `model:NAME`. Raises LimitUnknown without one."""
        return await self._ask(requests.limit(key))

    async def set_limit(
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
        return await self._ask(requests.set_limit(key, concurrency, per_minute, seen))

    async def remove_limit(self, key: str, *, seen: Limit | None = None) -> None:
        """Remove the limit of a key; with `seen`, raises LimitChanged if it has changed since."""
        await self._ask(requests.remove_limit(key, seen))

    async def tokens(self) -> list[TokenView]:
        """List all API tokens, newest first, without their secret texts or the API's own token."""
        return await self._ask(requests.all_tokens())

    async def create_token(
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
        return await self._ask(
            requests.create_token(name, scopes, expires_s, quotas, webhook, idempotency_key)
        )

    async def revoke_token(self, token: str) -> None:
        """Revoke an API token by its id. Raises TokenUnknown if there is no such token."""
        await self._ask(requests.revoke_token(token))

    async def _ask(self, ask: Ask[T]) -> T:
        return ask.read(await self._connection.transport.send(ask.call))
