"""Converts the fleet overview to Prometheus metrics (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from app.core.outcomes import MICROS
from app.fleet.overview import LATELY, SHOWN, RecentEnds
from leadhand.models.views.fleet import FleetView, Overdue, QueueView


def families(fleet: FleetView, lately: RecentEnds) -> Iterator[Family]:
    """Converts a fleet overview and the recent ends of sessions to Prometheus metrics.

    Their order is that of docs/operations.md.
    """
    yield Family("leadhand_sessions", "Stored sessions, by status.", _by("status", fleet.sessions))
    yield Family(
        "leadhand_recent_ends",
        f"Reasons of the sessions that ended last, up to {LATELY} of each status.",
        tuple(
            Sample(count, {"status": status, "reason": reason})
            for (status, reason), count in sorted(lately.reasons.items())
        ),
    )
    yield Family(
        "leadhand_recent_loops_accepted",
        f"Loops among the last {LATELY} completed sessions, by number of iterations.",
        _by("iterations", {str(n): count for n, count in sorted(lately.iterations.items())}),
    )
    yield Family(
        "leadhand_recent_verdicts",
        f"Verdicts of the last iterations of the last {SHOWN} sessions of each status.",
        _by("verdict", dict(sorted(lately.verdicts.items()))),
    )
    actions = Counter(one.action for worker in fleet.workers for one in worker.running)
    yield Family(
        "leadhand_steps_running",
        "Running attempts, by action.",
        _by("action", actions),
    )
    yield from _usage(lately.used)
    yield from _queues(fleet.queues)
    yield Family(
        "leadhand_workers",
        "Live workers, by place.",
        _by("place", Counter(worker.place for worker in fleet.workers)),
    )
    yield Family(
        "leadhand_exports_owed",
        "Sessions kept past their retention because their export cannot be written.",
        (Sample(fleet.exports_owed),),
    )
    yield from _overdue({"leases": fleet.leases, "ready": fleet.ready})


def _usage(used: Mapping[str, int]) -> Iterator[Family]:
    yield Family(
        "leadhand_cost_usd_total",
        "Cost of all attempts of all sessions, as reported by agents.",
        (Sample(used.get("cost_micros", 0) / MICROS),),
        kind="counter",
    )
    yield Family(
        "leadhand_tokens_total",
        "Tokens that models read (input) and wrote (output), as reported by agents.",
        _by("kind", {"input": used.get("tokens_in", 0), "output": used.get("tokens_out", 0)}),
        kind="counter",
    )


def _queues(queues: Iterable[QueueView]) -> Iterator[Family]:
    views = list(queues)
    for name, what, values in (
        ("depth", "Messages in a queue.", [q.depth for q in views]),
        ("ready", "Ready steps that no worker has claimed.", [q.ready for q in views]),
        (
            "oldest_seconds",
            "Waiting time of the oldest of them.",
            [q.oldest_ready_s for q in views],
        ),
        ("running", "Running attempts of the queue.", [q.running for q in views]),
        ("slots", "Attempts that its workers can run in parallel.", [q.slots for q in views]),
    ):
        samples = (
            Sample(value or 0, {"queue": queue.queue})
            for queue, value in zip(views, values, strict=True)
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
        "Overdue entries, which the sweep should have handled.",
        _by("list", {name: overdue.count for name, overdue in lists.items()}),
    )
    yield Family(
        "leadhand_overdue_oldest_seconds",
        "Time by which the oldest of them is overdue.",
        _by("list", {name: overdue.oldest_s or 0 for name, overdue in lists.items()}),
    )


def _by(label: str, values: Mapping[str, float]) -> tuple[Sample, ...]:
    return tuple(Sample(value, {label: name}) for name, value in values.items())


MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """A value with its labels."""

    value: float
    labels: Mapping[str, str] = {}


class Family(NamedTuple):
    """All samples of a metric."""

    name: str
    what: str
    samples: tuple[Sample, ...]
    kind: Literal["gauge", "counter"] = "gauge"


def render_metrics(families: Iterable[Family]) -> str:
    r"""Renders all metrics in the text format of Prometheus.

    >>> print(render_metrics([Family("up", "Whether.", (Sample(1, {"to": "a \\"}),))]), end="")
    # HELP up Whether.
    # TYPE up gauge
    up{to="a \\"} 1
    """
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.what}"
    yield f"# TYPE {family.name} {family.kind}"
    for value, labels in family.samples:
        named = ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items())
        yield f"{family.name}{{{named}}} {value:.15g}" if named else f"{family.name} {value:.15g}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
