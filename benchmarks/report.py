"""Formats the results as Markdown tables."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.meter import Reading, Resident
from benchmarks.processes import Submits
from benchmarks.sides import Sample
from benchmarks.workloads import Workload

_HEAD = (
    "| | steps/s | to Celery | to the floor | CPU of workers | of the server | commands"
    " | round trips | bytes | Redis kept | p50 | p95 |"
)
_PER = "| | | | | µs a step | µs a step | a step | a step | a step | B a session | ms | ms |"


def median(samples: Sequence[Sample]) -> Sample:
    """Each number's own median over the rounds."""
    rows = [(s.steps_per_s, *s.spent, s.memory_per_session, s.p50_ms, s.p95_ms) for s in samples]
    speed, *spent, memory, p50, p95 = (
        statistics.median(column) for column in zip(*rows, strict=True)
    )
    return Sample(speed, Reading(*spent), memory, p50, p95)


def table(work: Workload, sides: Mapping[str, Sequence[Sample]]) -> str:
    """One workload, a row for each side."""
    found = {name: median(samples) for name, samples in sides.items()}
    lines = [f"### {work.title}", "", _HEAD, "|---|" + "--:|" * 11, _PER]
    lines += [_row(name, sample, found) for name, sample in found.items()]
    return "\n".join([*lines, ""])


def many(sizes: Mapping[int, Mapping[str, Sequence[Sample]]]) -> str:
    """The table of cost per step by number of sessions; the floor shows the machine's variation."""
    lines = ["### W4, as parts of its smallest size", ""]
    lines += ["| sessions | commands | bytes | CPU | the floor's |", "|--:|--:|--:|--:|--:|"]
    spent = {
        size: [median(sides[name]).spent for name in ("leadhand", "floor")]
        for size, sides in sizes.items()
    }
    (first, first_floor), *_ = spent.values()
    for size, (ours, floor) in spent.items():
        parts = (
            ours.commands / first.commands,
            ours.bytes / first.bytes,
            _cpu_s(ours) / _cpu_s(first),
            _cpu_s(floor) / _cpu_s(first_floor),
        )
        lines.append(f"| {size:,} | " + " | ".join(f"{part:.2f}" for part in parts) + " |")
    return "\n".join([*lines, ""])


def _cpu_s(spent: Reading) -> float:
    return spent.server_s + spent.worker_s


def submits_table(rows: Sequence[Submits]) -> str:
    """The table of W5: submits."""
    lines = [
        "### W5: submitting, one after the other",
        "",
        "| | a second | to Celery | p50 | p95 | CPU |",
    ]
    lines.append("|---|--:|--:|--:|--:|--:|")
    plain = rows[-1].per_s
    for row in rows:
        times = f"{row.p50_ms:.2f} ms | {row.p95_ms:.2f} ms | {row.cpu_ms:.2f} ms"
        lines.append(f"| {row.name} | {row.per_s:.0f} | {row.per_s / plain:.2f} | {times} |")
    return "\n".join([*lines, ""])


def memory(processes: Mapping[str, Resident]) -> str:
    """The table of idle memory."""
    lines = ["### Memory of idle processes", "", "| | resident | its share |", "|---|--:|--:|"]
    lines += [
        f"| {name} | {one.rss:.0f} MB | {one.pss:.0f} MB |" for name, one in processes.items()
    ]
    return "\n".join([*lines, ""])


def _row(name: str, sample: Sample, sides: Mapping[str, Sample]) -> str:
    spent = sample.spent
    cells = [
        name,
        f"{sample.steps_per_s:.0f}",
        *(_ratio(sample, sides.get(other)) for other in ("celery", "floor")),
        f"{spent.worker_s * 1e6:.0f}",
        f"{spent.server_s * 1e6:.0f}",
        f"{spent.commands:.1f}",
        f"{spent.round_trips:.2f}",
        f"{spent.bytes:.0f}",
        f"{max(0, sample.memory_per_session):.0f}",
        f"{sample.p50_ms:.0f}",
        f"{sample.p95_ms:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _ratio(sample: Sample, other: Sample | None) -> str:
    return f"{sample.steps_per_s / other.steps_per_s:.2f}" if other else ""
