"""Decides whether a session needs a person, and lists those that do, by their index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, NamedTuple

from app.core.addresses import SessionRef, iso
from app.core.records import StepRecord
from app.core.states import SessionStatus
from app.plans.tasks import parse_plan
from app.sessions.listing import decode_cursor, encode_cursor, invalid_cursor
from app.sessions.presenters import budget_lines, reason_of
from app.sessions.queries import Queries
from app.sessions.questions import Asking, question_views
from app.store.changes import Called, ChangeReads
from app.store.errors import read_undamaged
from app.store.store import Store
from app.truncate import cut
from leadhand.models.text import reason_text
from leadhand.models.verdicts import Reason
from leadhand.models.views.explain import AttentionView, NeedView
from leadhand.models.views.fleet import WorkerView
from leadhand.models.views.view import Page

NeedKind = Literal["question", "approval", "proposal", "failed", "stuck", "budget", "messages"]
#: The part of a limit from which a person should look.
NEARLY = 0.8
#: Sessions per read, and the most that one page examines.
BATCH, LOOKED_AT = 50, 1000
#: Steps of a session that are read; of a session with as many, MANY are.
STEPS, MANY = 50, 2000
#: Questions of one session that are listed.
QUESTIONS = 10
#: Maximum characters of a reason.
TEXT = 2000
#: A badge counts to here, and keeps its number for this long while no session changes.
COUNTED, COUNT_KEPT_MS = 100, 2000
#: Hints without a worker after which a step is stuck; as `changes.call_person` is called.
STUCK_HINTS = 4
_END = Called(9e15, "")


class Question(NamedTuple):
    """A step that waits for the answer of a person."""

    address: str
    text: str
    since_ms: int | None


class Used(NamedTuple):
    """A limit of a session, and how much of it is used."""

    name: str
    used: float
    limit: float


class Facts(NamedTuple):
    """What is known about a session."""

    status: str
    kind: str
    #: Whether another session started it, and learns how it ends.
    has_parent: bool
    reason: Reason | None = None
    ended_ms: int | None = None
    questions: tuple[Question, ...] = ()
    #: Open proposals of its plan.
    proposals: int = 0
    #: Addresses of steps that no worker took for long.
    stuck: tuple[str, ...] = ()
    limits: tuple[Used, ...] = ()
    #: Unread messages that report a failure.
    escalated: int = 0


class Need(NamedTuple):
    """One reason why a person should look."""

    kind: NeedKind
    text: str
    address: str | None = None
    since_ms: int | None = None


def needs_attention(facts: Facts) -> list[Need]:
    """Returns why a person should look at a session, the most urgent first; empty if no reason."""
    if facts.status == SessionStatus.FAILED:
        return [] if facts.has_parent else [_failure(facts)]
    if facts.status != SessionStatus.ACTIVE:
        return []
    return [*_asked(facts), *_stuck(facts), *_limits(facts), *_messages(facts)]


def _failure(facts: Facts) -> Need:
    reason = facts.reason
    text = reason_text(reason.model_dump(mode="json")) if reason is not None else "it failed"
    return Need("failed", text, reason.at if reason else None, facts.ended_ms)


def _asked(facts: Facts) -> Iterator[Need]:
    for one in facts.questions:
        kind: NeedKind = "approval" if facts.kind == "plan" else "question"
        yield Need(kind, one.text, one.address, one.since_ms)
    if facts.proposals:
        many = "s" if facts.proposals > 1 else ""
        yield Need("proposal", f"{facts.proposals} proposed task{many} to accept or refuse")


def _stuck(facts: Facts) -> Iterator[Need]:
    if facts.stuck:
        first, more = facts.stuck[0], len(facts.stuck) - 1
        others = f" and {more} more" if more else ""
        yield Need("stuck", f"no worker takes {first}{others}", first)


def _limits(facts: Facts) -> Iterator[Need]:
    for one in facts.limits:
        if one.limit > 0 and one.used >= NEARLY * one.limit:
            part = int(100 * one.used / one.limit)
            yield Need("budget", f"{part}% of {one.name} is used")


def _messages(facts: Facts) -> Iterator[Need]:
    if facts.escalated and not facts.proposals:
        many = "s report" if facts.escalated > 1 else " reports"
        yield Need("messages", f"{facts.escalated} unread message{many} a failure")


class Waiting(NamedTuple):
    """A session that needs a person, as it was read."""

    called: Called
    ref: SessionRef
    fields: Mapping[str, str]
    needs: list[Need]
    #: Its steps that ask a person.
    asking: dict[str, StepRecord]


class _Count(NamedTuple):
    """A number of sessions, as of a change."""

    change: str
    at_ms: int
    number: int


class Attention:
    """Reads the index `attention`; it removes sessions that need no person any more."""

    def __init__(
        self, store: Store, queries: Queries, workers: Callable[[], list[WorkerView]]
    ) -> None:
        self._store = store
        self._queries = queries
        self._workers = workers
        self._index = store.part(ChangeReads)
        self._counted = _Count("", 0, 0)

    def page(self, *, limit: int = 50, cursor: str | None = None) -> Page[AttentionView]:
        """Returns a page of sessions that need a person, latest first; unindexes the others."""
        shown: list[Waiting] = []
        damaged: list[str] = []
        following: str | None = None
        for one in self._walk(_decode(cursor), damaged):
            if len(shown) == limit:
                last = shown[-1].called
                following = encode_cursor([last.at, last.session])
                break
            shown.append(one)
        unreadable: list[Waiting] = []
        items = read_undamaged(lambda some: [*map(self._view, some)], shown, unreadable)
        damaged += [one.ref.id for one in unreadable]
        return Page(items=items, next=following, damaged=damaged)

    def count(self) -> int:
        """Counts the sessions that need a person, up to COUNTED; briefly caches the number.

        Each page of each browser asks for the number, so it is counted once per change.
        """
        change, now = self._index.last(), self._store.now_ms()
        kept = self._counted
        if kept.change != change or not 0 <= now - kept.at_ms < COUNT_KEPT_MS:
            number = sum(1 for _ in islice(self._walk(_END, []), COUNTED))
            kept = self._counted = _Count(change, now, number)
        return kept.number

    def _view(self, one: Waiting) -> AttentionView:
        asking = Asking(0, one.ref, one.fields, one.asking)
        return AttentionView(
            session=self._queries.view(one.ref, one.fields),
            since=iso(int(one.called.at)),
            needs=[_need_view(need) for need in one.needs],
            questions=list(islice(question_views(asking), QUESTIONS)),
        )

    def _walk(self, before: Called, damaged: list[str]) -> Iterator[Waiting]:
        """Yields the sessions that need a person, newest first, without those that are damaged.

        Removes those that need no one from the index.
        """
        examined = 0
        while examined < LOOKED_AT and (found := self._index.called(before=before, limit=BATCH)):
            before, examined = found[-1], examined + len(found)
            over: list[Called] = []
            unreadable: list[Called] = []
            for one in read_undamaged(self._examine, found, unreadable):
                if one.needs:
                    yield one
                else:
                    over.append(one.called)
            damaged += [one.session for one in unreadable]
            self._index.remove(over)

    def _examine(self, found: Sequence[Called]) -> list[Waiting]:
        known = self._store.fields_of([one.session for one in found])
        active = [ref for ref, f in known.values() if f["status"] == SessionStatus.ACTIVE]
        parked = self._store.overview().parked(active, STEPS)
        for ref in [ref for ref, some in parked.items() if len(some) == STEPS]:
            parked[ref] = self._store.members(ref, "parked", MANY)
        waiting = []
        for called in found:
            ref, fields = known.get(called.session, (SessionRef(called.session, ""), {}))
            asking = self._asking(ref, parked.get(ref, []))
            shown = fields and fields.get("archived") != "1"
            needs = needs_attention(self._facts(ref, fields, asking)) if shown else []
            waiting.append(Waiting(called, ref, fields, needs, asking))
        return waiting

    def _asking(self, ref: SessionRef, addresses: list[str]) -> dict[str, StepRecord]:
        records = self._store.steps(ref, addresses) if addresses else {}
        return {a: r for a, r in records.items() if r.parked and r.parked.get("on") == "human"}

    def _facts(
        self, ref: SessionRef, fields: Mapping[str, str], asking: Mapping[str, StepRecord]
    ) -> Facts:
        lines = budget_lines(fields, self._store.now_ms())
        active = fields["status"] == SessionStatus.ACTIVE
        return Facts(
            status=fields["status"],
            kind=fields["kind"],
            has_parent=bool(fields.get("parent"))
            and not fields.get("detached_from")
            and "alone" not in fields,
            reason=reason_of(fields),
            ended_ms=int(fields["ended"]) if fields.get("ended") else None,
            questions=tuple(
                Question(a, str((r.parked or {}).get("question") or ""), r.since)
                for a, r in asking.items()
            ),
            proposals=self._proposals(ref) if active and fields["kind"] == "plan" else 0,
            stuck=self._stuck(ref, fields.get("place", "")) if active else (),
            limits=tuple(Used(name, one.used, one.limit) for name, one in lines.items()),
            escalated=int(fields.get("escalated", 0)),
        )

    def _proposals(self, ref: SessionRef) -> int:
        record = parse_plan(self._store.plan(ref))
        return 0 if record is None else sum(one.status == "open" for one in record.proposals)

    def _stuck(self, ref: SessionRef, place: str) -> tuple[str, ...]:
        """Ready steps that were hinted again and again while no worker is there to take them."""
        live = self._store.members(ref, "live", STEPS)
        if len(live) == STEPS:
            live = self._store.members(ref, "live", MANY)
        records = self._store.steps(ref, live)
        found = tuple(
            address
            for address, record in records.items()
            if record.state == "ready" and record.hints >= STUCK_HINTS
        )
        if not found:
            return ()
        there = any(not place or worker.place == place for worker in self._workers())
        return () if there else found


def _need_view(need: Need) -> NeedView:
    return NeedView(
        kind=need.kind,
        text=cut(need.text, TEXT),
        address=need.address,
        since=None if need.since_ms is None else iso(need.since_ms),
    )


def _decode(cursor: str | None) -> Called:
    if cursor is None:
        return _END
    match decode_cursor(cursor):
        case [int() | float() as at, str() as session]:
            return Called(float(at), session)
        case _:
            raise invalid_cursor(cursor)
