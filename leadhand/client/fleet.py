"""The operations on the whole: workers, store, limits, tokens, and what needs a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from leadhand.client.calls import Answer
from leadhand.client.operation import Ask, Op, Operations, Steps
from leadhand.client.requests import given, idempotent, items, reads, request, succeeds
from leadhand.contract import fleet, messages, tokens
from leadhand.errors import TokenUnknown, local_error
from leadhand.models.documents import Webhook
from leadhand.models.etags import limit_etag
from leadhand.models.problems import Kind
from leadhand.models.views.attention import AttentionView, ChangeView, SignInLink
from leadhand.models.views.audit import FsckView
from leadhand.models.views.fleet import (
    AgentView,
    FleetView,
    Limit,
    QueueView,
    StoreView,
    ToolView,
    WorkerView,
)
from leadhand.models.views.statistics import StatisticsView
from leadhand.models.views.tokens import NewToken, Quotas, TokenView
from leadhand.models.views.view import Page

#: The prefixes of the keys of limits: a named agent, a model, a queue, or a user's own key.
KINDS = ("agent", "model", "queue", "key")
#: The most findings of an audit that are kept; more are only counted.
SHOWN = 1000


class Fleet(Operations):
    """Reads and sets what all sessions share: workers, queues, limits, tokens and the store."""

    @Op
    def ping(self) -> Ask[None]:
        """Check that the API and its Redis respond, with retries. Raises ApiAway or Unavailable."""
        return succeeds(request(fleet.READY))

    @Op
    def workers(self) -> Ask[list[WorkerView]]:
        """List the live workers with their running steps."""
        return items(Page[WorkerView], request(fleet.WORKERS))

    @Op
    def agents(self) -> Ask[list[AgentView]]:
        """List the agents that workers offer, with the worker hosts (places) where each can run."""
        return items(Page[AgentView], request(fleet.AGENTS))

    @Op
    def tools(self) -> Ask[list[ToolView]]:
        """List the tools that workers offer, with the worker hosts (places) where each can run."""
        return items(Page[ToolView], request(fleet.TOOLS))

    @Op
    def queues(self) -> Ask[list[QueueView]]:
        """List the task queues with counts of messages, ready and running steps, and workers."""
        return items(Page[QueueView], request(fleet.QUEUES))

    @Op
    def fleet(self) -> Ask[FleetView]:
        """Get an overview of the fleet: sessions, queues, workers and overdue work."""
        return reads(FleetView, request(fleet.OVERVIEW))

    @Op
    def statistics(
        self, first: date | None = None, last: date | None = None
    ) -> Ask[StatisticsView]:
        """Get counts and costs of the days from `first` to `last` (UTC): the last seven by default.

        Raises RequestInvalid for more than 400 days.
        """
        days: dict[str, Any] = given(first=first, last=last)
        call = request(fleet.STATISTICS, **{name: day.isoformat() for name, day in days.items()})
        return reads(StatisticsView, call)

    @Op
    def fsck(self, *, repair: bool = False) -> Steps[FsckView]:
        """Return where records in Redis and the broker disagree; with `repair`, repair them too.

        All pages are combined; `items` has the first thousand findings.
        """
        found: FsckView | None = None
        while found is None or found.next is not None:
            body = {"repair": repair, **given(cursor=found and found.next)}
            page = yield from reads(FsckView, request(fleet.FSCK, body=body))
            found = combine_audits(found, page)
        return found

    @Op
    def store(self) -> Ask[StoreView]:
        """Get the id of the store in Redis, the id that the API remembers, and if they match."""
        return reads(StoreView, request(fleet.STORE))

    @Op
    def accept_store(self, *, new: bool = False, replaces: str | None = None) -> Ask[StoreView]:
        """Accept the data in Redis as the store; with `new` even if it is empty or another store.

        Without `new` only an older state of the same store is accepted; with it any store, also
        an empty one.
        `replaces` is the id that a worker remembers, where that is yet another one.
        """
        body = {"new": new, **given(replaces=replaces)}
        return reads(StoreView, request(fleet.ACCEPT_STORE, body=body))

    @Op
    def limits(self) -> Ask[list[Limit]]:
        """List all limits on concurrent attempts or attempts per minute, sorted by their keys."""
        return items(Page[Limit], request(fleet.LIMITS))

    @Op
    def limit(self, key: str) -> Ask[Limit]:
        """Get the attempt limit of a key such as `model:NAME`. Raises LimitUnknown without one."""
        return reads(Limit, request(fleet.LIMIT, *key_of_limit(key)))

    @Op
    def set_limit(
        self,
        key: str,
        *,
        concurrency: int | None = None,
        per_minute: float | None = None,
        seen: Limit | None = None,
    ) -> Ask[Limit]:
        """Set or replace the limit of a key: how many attempts run at once or start per minute.

        With `seen`, this and `remove_limit` raise LimitChanged if the limit has changed.
        """
        body = given(concurrency=concurrency, per_minute=per_minute)
        path = key_of_limit(key)
        return reads(Limit, request(fleet.SET_LIMIT, *path, body=body, headers=_if_match(seen)))

    @Op
    def remove_limit(self, key: str, *, seen: Limit | None = None) -> Ask[None]:
        """Remove the limit of a key; with `seen`, raises LimitChanged if it has changed since."""
        return succeeds(request(fleet.REMOVE_LIMIT, *key_of_limit(key), headers=_if_match(seen)))

    @Op
    def tokens(self) -> Ask[list[TokenView]]:
        """List all API tokens, newest first, without their secret texts or the API's own token."""
        return items(Page[TokenView], request(tokens.LIST))

    @Op
    def create_token(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        expires_s: int | None = None,
        quotas: Quotas | None = None,
        webhook: Webhook | Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Ask[NewToken]:
        """Create an API token and return it; only this result contains its secret text.

        The webhook is called for its sessions, unless their documents name their own. The same key
        with the same arguments returns the same token, unless that is revoked.
        """
        allowed = None if quotas is None else quotas.model_dump(exclude_none=True)
        more = given(expires_s=expires_s, quotas=allowed, webhook=webhook)
        body = {"name": name, "scopes": list(scopes), **more}
        return reads(
            NewToken, request(tokens.CREATE, body=body, headers=idempotent(idempotency_key))
        )

    @Op
    def revoke_token(self, token: str) -> Ask[None]:
        """Revoke an API token by its id. Raises TokenUnknown if there is no such token."""
        return Ask(request(tokens.REVOKE, token), _read_revoked)

    @Op
    def attention(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Ask[Page[AttentionView]]:
        """List a page of the sessions that need a person, with the reasons; the latest first."""
        return reads(Page[AttentionView], request(messages.ATTENTION, limit=limit, cursor=cursor))

    @Op
    def changes(
        self, *, after: str | None = None, limit: int | None = None
    ) -> Ask[Page[ChangeView]]:
        """List a page of the changes of all sessions after an id, oldest first; 5,000 are kept."""
        return reads(Page[ChangeView], request(messages.CHANGES, after=after, limit=limit))

    @Op
    def sign_in_link(self) -> Ask[SignInLink]:
        """Create a link that signs in to the dashboard once, within a minute."""
        return reads(SignInLink, request(tokens.SIGN_IN_LINK))


def combine_audits(so_far: FsckView | None, page: FsckView) -> FsckView:
    """Adds a page of an audit to the pages before: sums counts, keeps the first 1000 findings."""
    if so_far is None:
        return page
    return FsckView(
        items=[*so_far.items, *page.items][:SHOWN],
        found=so_far.found + page.found,
        left=so_far.left + page.left,
        keys=so_far.keys + page.keys,
        sessions=so_far.sessions + page.sessions,
        next=page.next,
    )


def _if_match(seen: Limit | None) -> dict[str, str]:
    return {} if seen is None else {"If-Match": limit_etag(seen.concurrency, seen.per_minute)}


def key_of_limit(key: str) -> tuple[str, str]:
    """Returns the kind and the name in the key of a limit. Raises RequestInvalid.

    >>> key_of_limit("model:org/one")
    ('model', 'org/one')
    """
    kind, _, name = key.partition(":")
    if kind not in KINDS or not name:
        raise local_error(
            Kind.INVALID,
            f"{key[:80]!r} is not the key of a limit",
            hint="use agent:NAME, model:NAME, queue:NAME or key:NAME",
            field="key",
        )
    return kind, name


def _read_revoked(answer: Answer) -> None:
    try:
        answer.checked()
    except TokenUnknown:
        if not answer.repeated:
            raise
