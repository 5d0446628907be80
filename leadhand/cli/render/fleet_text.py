"""Formats the fleet as text: queues, workers, sessions, tools, and what is overdue (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from pydantic import JsonValue

from leadhand.cli.render.tables import plural, table
from leadhand.models.json_schema import schema_of
from leadhand.models.text import plain
from leadhand.models.views.fleet import (
    FleetView,
    Overdue,
    QueueView,
    Running,
    ToolView,
    WorkerView,
)

#: Seconds past its time after which an entry counts as overdue; sweeps run about once a second.
LATE_S = 10.0


def queue_lines(queues: Sequence[QueueView]) -> list[str]:
    """Formats the table of queues, with a note on queues without a worker."""
    if not queues:
        return ["no queues; start a worker with `leadhand worker`"]
    head = ["QUEUE", "DEPTH", "READY", "OLDEST", "RUNNING", "SLOTS", "WORKERS"]
    rows = [
        [
            queue.queue,
            queue.depth,
            queue.ready,
            age(queue.oldest_ready_s),
            queue.running,
            queue.slots,
            queue.consumers or ("none: start one that consumes it" if queue.ready else 0),
        ]
        for queue in queues
    ]
    return table(head, rows)


def worker_lines(workers: Sequence[WorkerView], now: datetime) -> list[str]:
    """Formats the table of workers; below each, its running steps with their duration."""
    if not workers:
        return ["no workers; start one with `leadhand worker`"]
    head = ["WORKER", "PLACE", "HOST", "LOAD", "SEEN", "AGENTS"]
    rows = [
        [
            worker.name,
            worker.place,
            worker.host,
            f"{len(worker.running)}/{worker.concurrency}",
            age(_since(worker.seen_at, now)),
            " ".join(worker.agents),
        ]
        for worker in workers
    ]
    first, *lines = table(head, rows)
    return [first, *_with_steps(lines, workers, now)]


def fleet_lines(fleet: FleetView) -> list[str]:
    """Formats the state of the fleet: sessions, overdue work, queues and workers."""
    lines = [session_line(fleet.sessions), overdue_line(fleet), ""]
    lines += [*queue_lines(fleet.queues), ""]
    return lines + worker_lines(fleet.workers, datetime.fromisoformat(fleet.at))


def session_line(sessions: dict[str, int]) -> str:
    """Formats a line with the number of sessions in each status; leaves out zeros.

    >>> session_line({"active": 2, "stopped": 0, "failed": 1})
    'sessions: 2 active, 1 failed'
    """
    counts = ", ".join(f"{count} {status}" for status, count in sessions.items() if count)
    return f"sessions: {counts or 'none'}"


def overdue_line(fleet: FleetView) -> str:
    """Formats a line with the number and age of overdue leases and ready steps."""
    parts = [
        f"{plural(overdue.count, noun)} for {age(overdue.oldest_s)}"
        for overdue, noun in ((fleet.leases, "lease"), (fleet.ready, "ready step"))
        if is_late(overdue)
    ]
    return f"overdue: {', '.join(parts)}; is a sweeper running?" if parts else "overdue: nothing"


def is_late(overdue: Overdue) -> bool:
    """Whether the oldest entry is overdue for more than LATE_S (10 seconds)."""
    return overdue.oldest_s is not None and overdue.oldest_s > LATE_S


def age(seconds: float | None) -> str:
    """Formats seconds in at most two units, such as `2h01m`; `-` for None.

    >>> age(None), age(0.4), age(75), age(7300), age(200_000)
    ('-', '0s', '1m15s', '2h01m', '2d07h')
    """
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    for unit, name, below, other in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= unit:
            return f"{whole // unit}{name}{whole % unit // below:02}{other}"
    return f"{whole}s"


def _with_steps(
    lines: Sequence[str], workers: Sequence[WorkerView], now: datetime
) -> Iterator[str]:
    for line, worker in zip(lines, workers, strict=True):
        yield line
        if worker.not_taken:
            yield f"  does not consume {', '.join(map(plain, worker.not_taken))}"
        for step in worker.running:
            yield f"  {_doing(step, now)}"


def _doing(step: Running, now: datetime) -> str:
    again = f", attempt {step.attempt}" if step.attempt > 1 else ""
    since = age(_since(step.since, now))
    label = plain(step.label, most=40)
    return f"{plain(step.session)} {plain(step.address)} ({step.action} {label}) for {since}{again}"


def _since(at: str | None, now: datetime) -> float | None:
    return None if at is None else (now - datetime.fromisoformat(at)).total_seconds()


def tool_page(tool: ToolView) -> Iterator[str]:
    """Formats a tool with its arguments, the places that have it, and an example call."""
    yield f"{tool.name}: {tool.about}" if tool.about else tool.name
    yield f"kind: {tool.kind}"
    if tool.inline_s is not None:
        yield f"runs inside the worker, for at most {tool.inline_s:g} s"
    if tool.parameters:
        rows = []
        for one in tool.parameters:
            schema = schema_of(tool.input_schema, one.name)
            kind = one.annotation or "any"
            rows.append([one.name, kind, _default(schema, required=one.required), _about(schema)])
        yield from table(["ARGUMENT", "TYPE", "DEFAULT", "ABOUT"], rows)
    if tool.takes_any:
        yield "it takes arguments of any name"
    yield f"usable at: {' '.join(tool.usable_at) or 'nowhere'}"
    for place, why in tool.why_not.items():
        yield f"  not at {plain(place)}: {plain(why, most=400)}"
    needed = "".join(f" --arg {one.name}=..." for one in tool.parameters if one.required)
    yield f"call it with: leadhand tools call {tool.name}{needed}"


def _default(schema: Mapping[str, JsonValue], *, required: bool) -> str:
    if required:
        return "required"
    return json.dumps(schema["default"], ensure_ascii=False) if "default" in schema else "optional"


def _about(schema: Mapping[str, JsonValue]) -> str:
    return str(schema.get("description", ""))
