"""Runs the benchmarks beside plain Celery and a bare loop: ``python -P -m benchmarks``.

Rounds are interleaved (each workload on each side, then the next round), and medians are printed.
On a shared machine, only ratios within a run are meaningful.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks import end_to_end, processes, report
from benchmarks.meter import Meter, machine
from benchmarks.sides import CONCURRENCY, Floor, Ours, Plain, Sample, Side, measure_side
from benchmarks.workloads import MANY, WORKLOADS
from leadhand.local.redis_server import RedisServer

#: Maximum sessions for plain Celery, which would take minutes for more.
_PLAIN_UP_TO = 1000


def main(arguments: Sequence[str]) -> None:
    """Run the chosen benchmarks and print the tables."""
    asked = _parse_options(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(RedisServer(folder / ".leadhand"))
        meter = Meter(server.url)
        print(f"{machine(server.url)}; {CONCURRENCY} processes a side, {asked.rounds} rounds\n")
        ours = Ours(server.url, folder)
        stack.callback(ours.stop)
        celery = Plain(server.url, folder)
        stack.callback(celery.stop)
        floor = Floor(server.url, folder)
        stack.callback(floor.stop)
        if asked.processes:
            _processes(ours, celery, folder, server.url)
        _workloads([ours, celery, floor], meter, asked.only, asked.rounds)
        if asked.many:
            _many([ours, celery, floor], meter)
        if asked.end_to_end:
            end_to_end.compare(
                server.url, folder, (ours, celery, floor), list(end_to_end.WORKS), asked.rounds
            )


def _parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--no-many", dest="many", action="store_false", help="leave W4 out")
    parser.add_argument("--no-processes", dest="processes", action="store_false", help="and W5")
    parser.add_argument(
        "--no-end-to-end", dest="end_to_end", action="store_false", help="and the whole work"
    )
    return parser.parse_args(arguments)


def _workloads(sides: Sequence[Side], meter: Meter, only: Sequence[str], rounds: int) -> None:
    found: dict[str, dict[str, list[Sample]]] = {
        name: {side.name: [] for side in sides} for name in only
    }
    for _ in range(rounds):
        for name in only:
            for side in sides:
                found[name][side.name].append(measure_side(side, WORKLOADS[name], meter))
    for name in only:
        print(report.table(WORKLOADS[name], found[name]), flush=True)


def _many(sides: Sequence[Side], meter: Meter) -> None:
    """Run the smallest size again after each larger one, as the machine's speed varies."""
    small, *larger = MANY.values()
    found: dict[int, dict[str, list[Sample]]] = {
        work.sessions: defaultdict(list) for work in MANY.values()
    }
    for work in (small, *(one for large in larger for one in (large, small, small))):
        for side in sides:
            if side.name != "celery" or work.sessions <= _PLAIN_UP_TO:
                found[work.sessions][side.name].append(measure_side(side, work, meter))
    for work in MANY.values():
        print(report.table(work, found[work.sessions]), flush=True)
    print(report.many(found))


def _processes(ours: Ours, celery: Plain, folder: Path, url: str) -> None:
    again = [processes.again_s(url) for _ in range(3)]
    print(
        f"The step of a killed worker with a lease of {processes.LEASE_S:g} s was done"
        f" {statistics.median(again):.1f} s after its claim (median of {len(again)}).\n"
    )
    api = processes.Api(ours, folder)
    try:
        idle = processes.idle_worker(ours)
        for number, one in enumerate(api.idle()):
            idle[f"API process {number}" if number else "API, its arbiter"] = one
        print(report.memory(idle))
        rows = [api.submits(folder), *processes.submits_in_process(ours, celery)]
        print(report.submits_table(rows), flush=True)
    finally:
        api.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
