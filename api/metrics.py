"""What Prometheus is told: the fleet as numbers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from api.exposition import Family, Sample
from app.outcomes import MICROS
from app.views import FleetView, Overdue, QueueView
from app.watching import LATELY, SHOWN, Lately


def families(fleet: FleetView, lately: Lately) -> Iterator[Family]:
    """All of them, in the order in which docs/operations.md explains them."""
    yield Family(
        "leadhand_sessions", "Sessions that are kept, by status.", _by("status", fleet.sessions)
    )
    yield Family(
        "leadhand_recent_ends",
        f"Why the sessions ended that ended last, up to {LATELY} of each status.",
        tuple(
            Sample(count, {"status": status, "reason": reason})
            for (status, reason), count in sorted(lately.reasons.items())
        ),
    )
    yield Family(
        "leadhand_recent_loops_accepted",
        f"Of the last {LATELY} completed sessions the loops, by how many iterations they took.",
        _by("iterations", {str(n): count for n, count in sorted(lately.iterations.items())}),
    )
    yield Family(
        "leadhand_recent_verdicts",
        f"Of the last {SHOWN} sessions of each status, what their last iterations came to.",
        _by("verdict", dict(sorted(lately.verdicts.items()))),
    )
    actions = Counter(one.action for worker in fleet.workers for one in worker.running)
    yield Family(
        "leadhand_steps_running",
        "Attempts that workers make now, by action.",
        _by("action", actions),
    )
    yield from _used(lately.used)
    yield from _queues(fleet.queues)
    yield Family(
        "leadhand_workers",
        "Worker hosts that told of themselves lately, by place.",
        _by("place", Counter(worker.place for worker in fleet.workers)),
    )
    yield Family(
        "leadhand_exports_owed",
        "Sessions that stay past their time because their export cannot be written.",
        (Sample(fleet.exports_owed),),
    )
    yield from _overdue({"leases": fleet.leases, "ready": fleet.ready})


def _used(used: Mapping[str, int]) -> Iterator[Family]:
    yield Family(
        "leadhand_cost_usd_total",
        "What agents said that their attempts cost, of all sessions ever.",
        (Sample(used.get("cost_micros", 0) / MICROS),),
        kind="counter",
    )
    yield Family(
        "leadhand_tokens_total",
        "Tokens that models read (input) and wrote (output), as far as agents told.",
        _by("kind", {"input": used.get("tokens_in", 0), "output": used.get("tokens_out", 0)}),
        kind="counter",
    )


def _queues(queues: Iterable[QueueView]) -> Iterator[Family]:
    told = list(queues)
    for name, what, values in (
        ("depth", "Messages that stand in a queue.", [q.depth for q in told]),
        ("ready", "Steps that may run and that nobody has claimed.", [q.ready for q in told]),
        ("oldest_seconds", "How long the oldest of them waits.", [q.oldest_ready_s for q in told]),
        ("running", "Attempts of the queue that are made now.", [q.running for q in told]),
        ("slots", "Attempts that its workers can make side by side.", [q.slots for q in told]),
    ):
        samples = (
            Sample(value or 0, {"queue": queue.queue})
            for queue, value in zip(told, values, strict=True)
        )
        yield Family(f"leadhand_queue_{name}", what, tuple(samples))


def _overdue(lists: Mapping[str, Overdue]) -> Iterator[Family]:
    yield Family(
        "leadhand_timed",
        "Attempts and parked steps (leases), and steps whose hint is out or due (ready).",
        _by("list", {name: overdue.entries for name, overdue in lists.items()}),
    )
    yield Family(
        "leadhand_overdue",
        "Entries that are past their time: the sweep should have looked at them.",
        _by("list", {name: overdue.count for name, overdue in lists.items()}),
    )
    yield Family(
        "leadhand_overdue_oldest_seconds",
        "How long the oldest of them is past its time.",
        _by("list", {name: overdue.oldest_s or 0 for name, overdue in lists.items()}),
    )


def _by(label: str, values: Mapping[str, float]) -> tuple[Sample, ...]:
    return tuple(Sample(value, {label: name}) for name, value in values.items())
