"""The whole fleet at a glance: queues, workers and what they do, sessions, what is overdue.

All of it is read from Redis when it is asked for, and each read is bounded: a fleet with a million
sessions is looked at as fast as one with ten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from pydantic import BaseModel

from app.inventories import taken_from
from app.pictures import iso
from app.reasons import Reason
from app.records import StepRecord
from app.states import ENDED, SessionStatus
from app.store import Store
from app.store_watch import Stood
from app.views import FleetView, LedgerEntry, Overdue, QueueView, Running, WorkerView

#: How many steps of `leases` and of `ready` are looked at, those first whose time comes first.
LOOKED_AT = 1000
#: How many sessions of each status tell how they went lately.
LATELY = 100
#: How many of them show how many of their last iterations.
SHOWN, ITERATIONS = 20, 3

Depths = Callable[[Sequence[str]], Mapping[str, int]]


class Lately(NamedTuple):
    """How those sessions went that ended last in each status."""

    #: (status, the reason's code) -> how many of them
    reasons: Mapping[tuple[str, str], int]
    #: Of completed loops: how many iterations it took -> how many of them
    iterations: Mapping[int, int]
    #: What their last iterations came to -> how many of them
    verdicts: Mapping[str, int]
    #: What all sessions ever used: cost_micros, tokens_in, tokens_out.
    used: Mapping[str, int] = MappingProxyType({})


class _Route(BaseModel):
    """What a program says of a step, as far as it matters here."""

    action: str
    queue: str
    label: str

    def at(self, place: str) -> str:
        """The queue of the step, where its session is bound to this place."""
        return f"{self.queue}@{place}" if place else self.queue


class _Waiting(NamedTuple):
    queue: str
    since_ms: int


class Watch:
    """Looks at everything; changes nothing."""

    def __init__(
        self,
        store: Store,
        *,
        depths: Depths,
        workers: Callable[[], list[WorkerView]],
    ) -> None:
        self._store = store
        self._looks = store.looks()
        self._depths = depths
        self._inventories = workers

    def workers(self) -> list[WorkerView]:
        """The worker hosts that told of themselves lately, each with what it does."""
        return _with_load(self._inventories(), self._running())

    def queues(self) -> list[QueueView]:
        """Every queue that a worker takes from or that a step stands in, by name.

        And those of workers that are gone, while messages stand there.
        """
        return self._queues(self._inventories(), self._running(), self._store.now_ms())

    def fleet(self) -> FleetView:
        """Everything at once."""
        workers, running, now = self._inventories(), self._running(), self._store.now_ms()
        owed = self._store.fleet().owed()
        return FleetView(
            at=iso(now),
            sessions=self.sessions(),
            queues=self._queues(workers, running, now),
            workers=_with_load(workers, running),
            leases=self.overdue("leases", now),
            ready=self.overdue("ready", now),
            exports_owed=len(owed),
            export_trouble=next(iter(owed.values()), None),
        )

    def sessions(self) -> dict[str, int]:
        """How many sessions there are of each status."""
        sizes = self._looks.sizes([f"status:{status.value}" for status in SessionStatus])
        return {name.removeprefix("status:"): size for name, size in sizes.items()}

    def overdue(self, part: str, now_ms: int) -> Overdue:
        """What is past its time in `leases` or `ready`."""
        past = self._looks.past(part, now_ms)
        if past.oldest_ms is None:
            return Overdue(entries=past.entries)
        oldest_s = round((now_ms - past.oldest_ms) / 1000, 1)
        return Overdue(count=past.past, oldest_s=oldest_s, entries=past.entries)

    def lately(self) -> Lately:
        """How the sessions went that ended last."""
        reasons: Counter[tuple[str, str]] = Counter()
        iterations: Counter[int] = Counter()
        verdicts: Counter[str] = Counter()
        for status in sorted(status.value for status in ENDED):
            refs = self._looks.newest(status, LATELY)
            for reason, kind, count in self._looks.fields(refs, ["reason", "kind", "iterations"]):
                code = Reason.model_validate_json(reason).code.value if reason else ""
                reasons[status, code] += 1
                if status == SessionStatus.COMPLETED.value and kind == "loop" and count:
                    iterations[int(count)] += 1
            for line in self._looks.last_entries(refs[:SHOWN], ITERATIONS):
                verdicts[LedgerEntry.model_validate_json(line).verdict] += 1
        return Lately(reasons, iterations, verdicts, self._looks.used())

    def _running(self) -> list[Running]:
        looked_at = self._looks.next("leases", LOOKED_AT)
        records = [StepRecord.model_validate_json(stood.record) for stood in looked_at]
        return [
            _attempt(stood, record)
            for stood, record in zip(looked_at, records, strict=True)
            if record.state == "running"
        ]

    def _waiting(self, now_ms: int) -> Iterable[_Waiting]:
        """Ready steps whose time has come, with since when they could have run."""
        for stood in self._looks.next("ready", LOOKED_AT):
            record = StepRecord.model_validate_json(stood.record)
            since = max(record.ready or now_ms, record.due or 0)
            if record.state == "ready" and since <= now_ms:
                route = _Route.model_validate_json(stood.route)
                yield _Waiting(route.at(stood.place), since)

    def _queues(
        self, workers: Sequence[WorkerView], running: Sequence[Running], now_ms: int
    ) -> list[QueueView]:
        waiting = list(self._waiting(now_ms))
        names = {queue for worker in workers for queue in worker.queues}
        names |= {one.queue for one in waiting} | {one.queue for one in running}
        left = taken_from(self._store.fleet().workers()) - names
        depths = self._depths(sorted(names | left))
        names |= {name for name in left if depths.get(name)}
        return [
            _queue_view(name, depths.get(name, 0), workers, running, waiting, now_ms)
            for name in sorted(names)
        ]


def _queue_view(
    name: str,
    depth: int,
    workers: Sequence[WorkerView],
    running: Sequence[Running],
    waiting: Sequence[_Waiting],
    now_ms: int,
) -> QueueView:
    consumers = [worker for worker in workers if name in worker.queues]
    since = [one.since_ms for one in waiting if one.queue == name]
    return QueueView(
        queue=name,
        depth=depth,
        ready=len(since),
        running=sum(one.queue == name for one in running),
        oldest_ready_at=iso(min(since)) if since else None,
        oldest_ready_s=round((now_ms - min(since)) / 1000, 1) if since else None,
        consumers=len(consumers),
        slots=sum(worker.concurrency for worker in consumers),
    )


def _attempt(stood: Stood, record: StepRecord) -> Running:
    route = _Route.model_validate_json(stood.route)
    return Running(
        session=stood.ref.id,
        address=stood.address,
        action=route.action,
        label=route.label,
        queue=route.at(stood.place),
        attempt=record.attempt,
        process=record.owner or "",
        since=iso(record.since) if record.since else None,
    )


def _with_load(workers: Sequence[WorkerView], running: Sequence[Running]) -> list[WorkerView]:
    return [
        worker.model_copy(
            update={"running": [r for r in running if r.process.split("/")[0] == worker.name]}
        )
        for worker in workers
    ]
