"""Measures whole work: from the first submit until the last result is fetched and checked.

``python -P -m benchmarks.end_to_end``. The workers are at rest when the first submit is made, and
work while the others are. Each side runs in its fastest form, with the same number of processes and
one Redis; the CPU time is that of the workers, the server and this process, per step. Rounds are
interleaved; medians are printed, with the lowest and the highest in brackets.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psutil
from celery import chain, chord
from redis import Redis

from app.core.addresses import SessionRef
from app.core.program import Action, Program, Step
from app.sessions.submit import About
from benchmarks import floor, plain, programs
from benchmarks.meter import Meter, machine
from benchmarks.sides import CONCURRENCY, PATIENCE_S, Floor, Ours, Plain, end, start, wait
from leadhand.local.redis_server import RedisServer

IN_A_ROW, WIDTH = 10, 1000
#: Messages that a process of Dramatiq holds; with its default, 2, it is six times slower here.
PREFETCH = 16
#: What each quick step returns, where it is not the number of its item.
NUMBER = 7


class Work(NamedTuple):
    """A workload: its title, its number of sessions, and the steps of each."""

    title: str
    sessions: int
    steps: int


WORKS: Mapping[str, Work] = {
    "W1": Work("W1: 200 sessions of 10 steps in a row", 200, IN_A_ROW),
    "W2": Work("W2: 60 loops of 3 iterations with 3 checks", 60, 15),
    "W3": Work("W3: 1,000 steps side by side and a join", 1, WIDTH + 1),
}


class Run(NamedTuple):
    """One run of one side."""

    steps_per_s: float
    cpu_us: float


class Party(Protocol):
    """Submits work to workers that are there already, and fetches its results."""

    name: str

    def pids(self) -> list[int]:
        """The top of each process tree that carries steps out."""

    def run(self, name: str, work: Work) -> None:
        """Submit all sessions, then fetch and check all results."""


class Leadhand:
    """Programs, submitted from Python; all outcomes of each session are read.

    `module` has the functions; without it the steps are tools of the worker's own.
    """

    def __init__(self, ours: Ours, folder: Path, module: str = "") -> None:
        self.name = f"leadhand, {module} functions" if module else "leadhand, built-in tools"
        self._ours, self._folder = ours, folder
        self._redis = Redis.from_url(ours.env["LEADHAND_REDIS_URL"])
        prefix = f"{module}:" if module else ""
        row = tuple(_echo(f"s{n}", NUMBER, prefix) for n in range(IN_A_ROW))
        each = _echo("each", "${item}", prefix).model_copy(update={"for_each": tuple(range(WIDTH))})
        self._programs = {
            "W1": Program(name="row", body=row),
            "W2": programs.loop(quick=True, module=module),
            "W3": Program(name="wide", body=(each, programs.fan_out(1).body[1])),
        }

    def pids(self) -> list[int]:
        return self._ours.pids()

    def run(self, name: str, work: Work) -> None:
        engine, program = self._ours.engine, self._programs[name]
        about = About(kind="workflow", name=work.title, cwd=str(self._folder))
        found = [engine.submit.program(program, about).session for _ in range(work.sessions)]
        wait(lambda: self._redis.zcard(self._ours.done) >= len(found))
        for session in found:
            outcomes = engine.store.outcomes(SessionRef(session, session))
            assert len(outcomes) == work.steps, f"{len(outcomes)} outcomes of {work.steps}"
            values = [json.loads(text).get("value") for text in outcomes.values()]
            if name == "W1":
                assert values == [{"number": NUMBER}] * IN_A_ROW
            elif name == "W3":
                numbers = sorted(value["number"] for value in values if value is not None)
                assert numbers == [*range(WIDTH)]


def _echo(name: str, number: object, prefix: str) -> Step:
    arguments = {"number": number}
    inputs: dict[str, Any] = {"tool": f"{prefix}echo", "quick": True, "arguments": arguments}
    return Step(id=name, action=Action.TOOL, quick=True, inputs=inputs)


class Celery:
    """Chains and chords; a chain keeps the result of its last task only."""

    name = "celery"

    def __init__(self, plain_side: Plain, url: str) -> None:
        self._side = plain_side
        self._redis = Redis.from_url(url)

    def pids(self) -> list[int]:
        return self._side.pids()

    def run(self, name: str, work: Work) -> None:
        app = self._side.app
        if name == "W2":
            for number in range(work.sessions):
                plain.send_iteration(app, 1, str(number))
            wait(lambda: self._redis.zcard(plain.DONE) >= work.sessions)
            assert len(self._redis.zrange(plain.DONE, 0, -1)) == work.sessions
            return
        if name == "W1":
            row = [app.signature("plain.noop", immutable=True) for _ in range(IN_A_ROW - 1)]
            last = app.signature("plain.echo", args=(NUMBER,), immutable=True)
            sent = [chain(*row, last, app=app).apply_async() for _ in range(work.sessions)]
        else:
            header = [app.signature("plain.echo", args=(number,)) for number in range(WIDTH)]
            sent = [chord(header, app.signature("plain.total"), app=app).apply_async()]
        wanted = NUMBER if name == "W1" else sum(range(WIDTH))
        assert all(one.get(timeout=PATIENCE_S) == wanted for one in sent)
        for one in sent:
            one.forget()


class Dramatiq:
    """Pipelines and groups; the join of W3 is where the results of the group are fetched."""

    name = "dramatiq"

    def __init__(self, url: str, folder: Path) -> None:
        os.environ["BENCH_REDIS_URL"] = url
        from benchmarks import dramatiq_tasks

        self._tasks = dramatiq_tasks
        self._redis = Redis.from_url(url)
        arguments = ["benchmarks.dramatiq_tasks:BROKER", "--processes", str(CONCURRENCY)]
        log = folder / "dramatiq.log"
        # Its workers wait for the server between messages unless they may fetch more than they do.
        env = {**os.environ, "dramatiq_queue_prefetch": str(PREFETCH)}
        self._worker = start("dramatiq", *arguments, "--threads", "1", log=log, env=env)
        wait(lambda: len(psutil.Process(self._worker.pid).children()) >= CONCURRENCY)

    def pids(self) -> list[int]:
        return [self._worker.pid]

    def run(self, name: str, work: Work) -> None:
        tasks, timeout = self._tasks, PATIENCE_S * 1000
        if name == "W2":
            for number in range(work.sessions):
                tasks.do.send(str(number), 1)
            wait(lambda: self._redis.scard(tasks.ACCEPTED) >= work.sessions)
            assert len(self._redis.smembers(tasks.ACCEPTED)) == work.sessions
        elif name == "W1":
            sent = []
            for _ in range(work.sessions):
                row = [tasks.noop.message() for _ in range(IN_A_ROW - 1)]
                last = tasks.echo.message_with_options(args=(NUMBER,), pipe_ignore=True)
                sent.append(tasks.dramatiq.pipeline([*row, last]).run())
            assert all(one.get_result(block=True, timeout=timeout) == NUMBER for one in sent)
        else:
            group = tasks.dramatiq.group([tasks.echo.message(n) for n in range(WIDTH)]).run()
            assert [*group.get_results(block=True, timeout=timeout)] == [*range(WIDTH)]

    def stop(self) -> None:
        end(self._worker)


class BareLoop:
    """The floor: its results are the names of the sequences that ended."""

    name = "floor"

    def __init__(self, side: Floor, url: str) -> None:
        self._side = side
        self._redis = Redis.from_url(url)

    def pids(self) -> list[int]:
        return self._side.pids()

    def run(self, name: str, work: Work) -> None:
        rows, steps = (WIDTH + 1, 1) if name == "W3" else (work.sessions, work.steps)
        for row in range(rows):
            floor.send(self._redis, steps, str(row))
        wait(lambda: self._redis.zcard(floor.DONE) >= rows)
        assert len(self._redis.zrange(floor.DONE, 0, -1)) == rows


def measure(party: Party, name: str, meter: Meter) -> Run:
    """Run a workload once."""
    work = WORKS[name]
    meter.empty()
    before, own, began = meter.read(party.pids()), time.process_time(), time.perf_counter()
    party.run(name, work)
    took = time.perf_counter() - began
    spent = meter.read(party.pids()) - before
    cpu_s = spent.worker_s + spent.server_s + time.process_time() - own
    steps = work.sessions * work.steps
    return Run(steps / took, cpu_s / steps * 1e6)


def table(name: str, runs: Mapping[str, Sequence[Run]]) -> str:
    """One workload as a Markdown table, a row for each side."""
    lines = [f"### {WORKS[name].title}, end to end", ""]
    lines += ["| | steps/s | to Celery | to Dramatiq | CPU µs a step |", "|---|--:|--:|--:|--:|"]
    speed = {side: statistics.median(one.steps_per_s for one in runs[side]) for side in runs}
    for side, found in runs.items():
        ratios = [f"{speed[side] / speed[other]:.2f}" for other in ("celery", "dramatiq")]
        rates = _spread([one.steps_per_s for one in found])
        cells = [side, rates, *ratios, _spread([one.cpu_us for one in found])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def run_rounds(
    parties: Sequence[Party], meter: Meter, names: Sequence[str], rounds: int
) -> dict[str, dict[str, list[Run]]]:
    """Run each workload on each side, then the next round."""
    found: dict[str, dict[str, list[Run]]] = {n: {p.name: [] for p in parties} for n in names}
    for name in names:  # the first run of each loads programs and functions
        for party in parties:
            measure(party, name, meter)
    for _ in range(rounds):
        for name in names:
            for party in parties:
                found[name][party.name].append(measure(party, name, meter))
    return found


def compare(
    url: str, folder: Path, sides: tuple[Ours, Plain, Floor], names: Sequence[str], rounds: int
) -> None:
    """Run the workloads on these sides and on Dramatiq, and print the tables."""
    ours, celery, bare = sides
    dramatiq = Dramatiq(url, folder)
    forms = [Leadhand(ours, folder, form) for form in ("", programs.INLINE, programs.SAFE)]
    parties: list[Party] = [*forms, Celery(celery, url), dramatiq, BareLoop(bare, url)]
    try:
        for name, runs in run_rounds(parties, Meter(url), names, rounds).items():
            print(table(name, runs), flush=True)
    finally:
        dramatiq.stop()


def main(arguments: Sequence[str]) -> None:
    """Run the chosen workloads and print the tables."""
    parser = argparse.ArgumentParser(prog="benchmarks.end_to_end", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=WORKS, default=list(WORKS))
    asked = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(RedisServer(folder / ".leadhand")).url
        print(f"{machine(url)}; {CONCURRENCY} processes a side, {asked.rounds} rounds\n")
        sides = (Ours(url, folder), Plain(url, folder), Floor(url, folder))
        for side in sides:
            stack.callback(side.stop)
        compare(url, folder, sides, asked.only, asked.rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
