"""The operations on the fleet: workers, agents, tools, queues, statistics, limits and the store."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from leadhand.contract.calls import Ask, Noun, Op, Steps
from leadhand.contract.operation import (
    GONE,
    ApiResponse,
    Body,
    BodyRight,
    Day,
    NoQuery,
    Operation,
    Query,
    Scope,
    replies,
)
from leadhand.contract.requests import calls, given, reads, request, succeeds
from leadhand.errors import RequestInvalid
from leadhand.models.etags import limit_etag
from leadhand.models.views.fleet import (
    AgentView,
    FleetView,
    FsckView,
    Limit,
    QueueView,
    StatisticsView,
    StoreView,
    ToolView,
    WorkerView,
)
from leadhand.models.views.view import Page

#: The longest path of a folder.
LONGEST = 4096
#: The prefixes of the keys of limits: a named agent, a model, a queue, or a user's own key.
KINDS = ("agent", "model", "queue", "key")
#: The most findings of an audit that are kept; more are only counted.
SHOWN = 1000
_LIMIT = "/v1/limits/{kind:any(agent, model, key, queue)}/{name:path}"


class FolderQuery(Query):
    """The folder whose agents, flows and tools are listed."""

    #: An absolute path; only the embedded services of a user look at folders.
    folder: Annotated[str, Field(pattern=r"^/[^\x00-\x1f]*$", max_length=LONGEST)] | None = None


WORKERS = Operation[FolderQuery](
    name="workers.listed", method="GET", path="/v1/workers",
    summary="List the workers",
    responses=(replies(Page[WorkerView], "All live workers."),),
    scope=Scope.READ,
    query=FolderQuery,
)  # fmt: skip


AGENTS = Operation[FolderQuery](
    name="agents.listed", method="GET", path="/v1/agents",
    summary="List the agents",
    responses=(replies(Page[AgentView], "All agents, and where each can be used."),),
    scope=Scope.READ,
    body_right=BodyRight("spawn", "any"), query=FolderQuery,
)  # fmt: skip


TOOLS = Operation[FolderQuery](
    name="tools.listed", method="GET", path="/v1/tools",
    summary="List the tools",
    responses=(replies(Page[ToolView], "All tools of the workers, and where each can be used."),),
    scope=Scope.READ,
    query=FolderQuery,
)  # fmt: skip


QUEUES = Operation[NoQuery](
    name="fleet.queues", method="GET", path="/v1/queues",
    summary="List the queues",
    responses=(replies(Page[QueueView], "All queues with a worker or a step."),),
    scope=Scope.READ,
)  # fmt: skip


OVERVIEW = Operation[NoQuery](
    name="fleet.fleet", method="GET", path="/v1/fleet",
    summary="Show an overview of the fleet",
    responses=(replies(FleetView, "Sessions by status, queues, workers, overdue entries."),),
    scope=Scope.READ,
)  # fmt: skip


class StatisticsQuery(Query):
    """A period of days by UTC, both included: the last seven unless given."""

    #: The first day, such as 2026-11-01; six days before the last one unless given.
    first: Day | None = None
    #: The last day; today unless given.
    last: Day | None = None


STATISTICS = Operation[StatisticsQuery](
    name="statistics.of_period", method="GET", path="/v1/statistics",
    summary="Show the statistics of a period",
    responses=(replies(StatisticsView, "What ended, was checked and was used, by day and name."),),
    scope=Scope.READ,
    query=StatisticsQuery,
)  # fmt: skip


METRICS = Operation[NoQuery](
    name="fleet.metrics", method="GET", path="/metrics",
    summary="Read the fleet as metrics",
    responses=(ApiResponse(200, "All metrics in the text format of Prometheus.",
                           {"text/plain": str}),),
    scope=Scope.READ,
)  # fmt: skip


class FsckBody(Body):
    """Whether to repair findings, and the cursor of the audit."""

    repair: bool = False
    cursor: Annotated[str, Field(pattern=r"^[0-9]{1,18}$")] | None = None


FSCK = Operation[FsckBody](
    name="fleet.fsck", method="POST", path="/v1/fsck",
    summary="Audit the data in Redis and the broker",
    responses=(replies(FsckView, "The findings of a batch, and the cursor of the next call."),),
    scope=Scope.ADMIN,
    body=FsckBody,
)  # fmt: skip


STORE = Operation[NoQuery](
    name="store.show", method="GET", path="/v1/store",
    summary="Show the store",
    responses=(replies(StoreView, "The store in Redis, and the one that the API remembers."),),
    scope=Scope.READ,
)  # fmt: skip


class AcceptBody(Body):
    """What to accept; without options, an older state of the same store."""

    #: An empty Redis, or another store than before.
    new: bool = False
    #: A further id that the store succeeds, for a worker that remembers another id than the API.
    replaces: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None


ACCEPT_STORE = Operation[AcceptBody](
    name="store.accept", method="POST", path="/v1/store/accept",
    summary="Accept the store",
    responses=(replies(StoreView, "The store as it is now."),),
    scope=Scope.ADMIN,
    body=AcceptBody,
)  # fmt: skip


LIMITS = Operation[NoQuery](
    name="limits.listed", method="GET", path="/v1/limits",
    summary="List the limits",
    responses=(replies(Page[Limit], "All limits."),),
    scope=Scope.READ,
)  # fmt: skip


LIMIT = Operation[NoQuery](
    name="limits.one", method="GET", path=_LIMIT,
    summary="Show a limit",
    responses=(replies(Limit, "The current limit.", headers=("ETag",)),),
    scope=Scope.READ,
)  # fmt: skip


class LimitBody(Body):
    """A limit; at least one of the two fields is required."""

    concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    per_minute: Annotated[float, Field(gt=0, le=100_000)] | None = None

    @model_validator(mode="after")
    def _check_not_empty(self) -> LimitBody:
        if self.concurrency is None and self.per_minute is None:
            raise ValueError("give concurrency, per_minute or both")
        return self


SET_LIMIT = Operation[LimitBody](
    name="limits.put", method="PUT", path=_LIMIT,
    summary="Set a limit",
    responses=(replies(Limit, "The current limit.", headers=("ETag",)),),
    scope=Scope.ADMIN,
    body=LimitBody, body_required=True, headers=("If-Match",), refuses=(412,),
)  # fmt: skip


REMOVE_LIMIT = Operation[NoQuery](
    name="limits.delete", method="DELETE", path=_LIMIT,
    summary="Remove a limit",
    responses=(GONE,),
    scope=Scope.ADMIN,
    headers=("If-Match",), refuses=(412,),
)  # fmt: skip


class Health(BaseModel):
    status: Literal["alive", "ready"]


ALIVE = Operation[None](
    name="health.alive", method="GET", path="/healthz",
    summary="Check liveness",
    responses=(replies(Health, "The process is alive."),),
    scope=None,
    query=None,
)  # fmt: skip


READY = Operation[None](
    name="health.ready", method="GET", path="/readyz",
    summary="Check readiness",
    responses=(replies(Health, "The process is ready."),),
    scope=None,
    query=None, refuses=(503,),
)  # fmt: skip


DESCRIPTION = Operation[None](
    name="description.document", method="GET", path="/openapi.json",
    summary="Describe this API (OpenAPI 3.1)",
    responses=(replies(dict[str, object], "This document."),),
    scope=None,
    query=None,
)  # fmt: skip


DESCRIPTION_PAGE = Operation[None](
    name="description.page", method="GET", path="/docs",
    summary="Show this description as a page",
    responses=(ApiResponse(200, "The page.", {"text/html": str}),),
    scope=None,
    query=None,
)  # fmt: skip


class Fleet(Noun):
    """Reads and sets what all sessions share: workers, queues, limits and the store."""

    @calls(READY)
    def ping(self) -> None:
        """Check that the API and its Redis respond, with retries. Raises ApiAway or Unavailable."""

    @calls(WORKERS)
    def workers(self) -> list[WorkerView]:
        """List the live workers with their running steps."""

    @calls(AGENTS)
    def agents(self) -> list[AgentView]:
        """List the agents that workers offer, with the worker hosts (places) where each can run."""

    @calls(TOOLS)
    def tools(self) -> list[ToolView]:
        """List the tools that workers offer, with the worker hosts (places) where each can run."""

    @calls(QUEUES)
    def queues(self) -> list[QueueView]:
        """List the task queues with counts of messages, ready and running steps, and workers."""

    @calls(OVERVIEW)
    def fleet(self) -> FleetView:
        """Get an overview of the fleet: sessions, queues, workers and overdue work."""

    @calls(STATISTICS)
    def statistics(self, first: date | None = None, last: date | None = None) -> StatisticsView:
        """Get counts and costs of the days from `first` to `last` (UTC): the last seven by default.

        Raises RequestInvalid for more than 400 days.
        """

    @Op
    def fsck(self, *, repair: bool = False) -> Steps[FsckView]:
        """Return where records in Redis and the broker disagree; with `repair`, repair them too.

        All pages are combined; `items` has the first thousand findings.
        """
        found: FsckView | None = None
        while found is None or found.next is not None:
            body = {"repair": repair, **given(cursor=found and found.next)}
            page = yield from reads(FsckView, request(FSCK, body=body))
            found = combine_audits(found, page)
        return found

    @calls(STORE)
    def store(self) -> StoreView:
        """Get the id of the store in Redis, the id that the API remembers, and if they match."""

    @calls(ACCEPT_STORE)
    def accept_store(self, *, new: bool = False, replaces: str | None = None) -> StoreView:
        """Accept the data in Redis as the store; with `new` even if it is empty or another store.

        Without `new` only an older state of the same store is accepted; with it any store, also
        an empty one.
        `replaces` is the id that a worker remembers, where that is yet another one.
        """

    @calls(LIMITS)
    def limits(self) -> list[Limit]:
        """List all limits on concurrent attempts or attempts per minute, sorted by their keys."""

    @Op
    def limit(self, key: str) -> Ask[Limit]:
        """Get the attempt limit of a key such as `model:NAME`. Raises LimitUnknown without one."""
        return reads(Limit, request(LIMIT, *key_of_limit(key)))

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
        return reads(Limit, request(SET_LIMIT, *path, body=body, headers=_if_match(seen)))

    @Op
    def remove_limit(self, key: str, *, seen: Limit | None = None) -> Ask[None]:
        """Remove the limit of a key; with `seen`, raises LimitChanged if it has changed since."""
        return succeeds(request(REMOVE_LIMIT, *key_of_limit(key), headers=_if_match(seen)))


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
        raise RequestInvalid(
            f"{key[:80]!r} is not the key of a limit",
            hint="use agent:NAME, model:NAME, queue:NAME or key:NAME",
            field="key",
        )
    return kind, name
