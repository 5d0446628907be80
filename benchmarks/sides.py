"""The three measured systems, each with its own processes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil
from redis import Redis

from app.engine import Engine
from app.sessions.submit import About
from app.settings import Settings
from benchmarks import floor, plain, programs
from benchmarks.meter import Meter, Reading
from benchmarks.workloads import Workload
from tasks.bootstrap import make_engine

#: Processes that carry steps out, on each side.
CONCURRENCY = 2
SECRET = "of the benchmark"
#: Seconds between looks at whether all has ended, and after which it is given up.
LOOK_S = 0.005
PATIENCE_S = 300


class Sample(NamedTuple):
    """One run of a workload by one side, per step."""

    steps_per_s: float
    spent: Reading
    memory_per_session: float
    p50_ms: float
    p95_ms: float


class Side(Protocol):
    """Carries workloads out."""

    name: str
    #: Which list tells how many are done, and the process trees that do it.
    done: str

    def pids(self) -> list[int]:
        """The top of each process tree that carries steps out."""

    def send(self, work: Workload, number: int) -> int:
        """Begin one session; how many entries it will add to the list of what is done."""

    def times_ms(self) -> list[float]:
        """How long each session took from its sending to its end."""


def measure_side(side: Side, work: Workload, meter: Meter) -> Sample:
    """Send all sessions, resume the workers, and measure until the last one ends."""
    meter.empty()
    before_memory = meter.memory()
    before, began = meter.read(side.pids()), time.perf_counter()
    with _suspended(side, held=work.held):
        ends = sum(side.send(work, number) for number in range(work.sessions))
        if work.held:
            before, began = meter.read(side.pids()), time.perf_counter()
    wait(lambda: meter.count(side.done) >= ends)
    took = time.perf_counter() - began
    spent = meter.read(side.pids()) - before
    steps = work.sessions * work.steps
    times = sorted(side.times_ms())
    return Sample(
        steps / took,
        Reading(*(one / steps for one in spent)),
        (meter.memory() - before_memory) / work.sessions,
        times[len(times) // 2],
        times[len(times) * 95 // 100],
    )


@contextmanager
def _suspended(side: Side, *, held: bool) -> Iterator[None]:
    """Stop the side's processes for as long as the block runs."""
    groups = side.pids() if held else []
    for pid in groups:
        os.killpg(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in groups:
            os.killpg(pid, signal.SIGCONT)


class Ours:
    """One worker of ours."""

    name = "leadhand"
    done = "lh:status:completed"

    def __init__(self, url: str, folder: Path) -> None:
        env = {
            **os.environ,
            "LEADHAND_REDIS_URL": url,
            "LEADHAND_SECRET": SECRET,
            "LEADHAND_CONCURRENCY": str(CONCURRENCY),
            "LEADHAND_SPILL": str(folder / "spill"),
            "LEADHAND_WORKER_NAME": "bench",
            "LEADHAND_TOOLS": str(folder / "tools"),
        }
        (folder / "checks.py").write_text(programs.CHECKS, encoding="utf-8")
        (folder / "tools").mkdir()
        for module in (programs.SAFE, programs.INLINE):
            (folder / f"tools/{module}.py").write_text(programs.TOOLS, encoding="utf-8")
        (folder / "tools/tools.toml").write_text(programs.INLINE_TOOLS, encoding="utf-8")
        self._folder = folder
        self.engine: Engine
        self.engine, _ = make_engine(Settings.from_env(env))
        self._redis = Redis.from_url(url, decode_responses=True)
        self.env = env
        self._worker = start("leadhand.serve", "worker", log=folder / "leadhand.log", env=env)
        wait(lambda: bool(self.engine.fleet.inventories()))

    def pids(self) -> list[int]:
        return [self._worker.pid]

    def send(self, work: Workload, number: int) -> int:
        about = About(kind="workflow", name=f"{work.title} {number}", cwd=str(self._folder))
        self.engine.submit.program(work.program, about)
        return 1

    def times_ms(self) -> list[float]:
        found = self._redis.zrange(self.done, 0, -1)
        keys = (f"lh:{{{session}}}:{session}:session" for session in found)
        ends = [self._redis.hmget(key, "created", "ended") for key in keys]
        return [float(ended) - float(created) for created, ended in ends]

    def stop(self) -> None:
        end(self._worker)


class Plain:
    """One worker of plain Celery's."""

    name = "celery"
    done = plain.DONE

    def __init__(self, url: str, folder: Path) -> None:
        self.app = plain.make_app(url)
        self._redis = Redis.from_url(url, decode_responses=True)
        arguments = ("benchmarks.plain", url, str(CONCURRENCY))
        self._worker = start(*arguments, log=folder / "celery.log", env=os.environ)
        wait(lambda: len(psutil.Process(self._worker.pid).children()) >= CONCURRENCY)

    def pids(self) -> list[int]:
        return [self._worker.pid]

    def send(self, work: Workload, number: int) -> int:
        work.plain(self.app, f"{number}")
        return 1

    def times_ms(self) -> list[float]:
        return [s * 1000 for _, s in self._redis.zrange(self.done, 0, -1, withscores=True)]

    def stop(self) -> None:
        end(self._worker)
        gc.collect()  # results forget themselves on the server, which goes next


class Floor:
    """As many bare loops as the others have processes."""

    name = "floor"
    done = floor.DONE

    def __init__(self, url: str, folder: Path) -> None:
        self._redis = Redis.from_url(url, decode_responses=True)
        self._loops = [
            start("benchmarks.floor", url, log=folder / "floor.log", env=os.environ)
            for _ in range(CONCURRENCY)
        ]

    def pids(self) -> list[int]:
        return [loop.pid for loop in self._loops]

    def send(self, work: Workload, number: int) -> int:
        rows = work.steps // work.in_a_row
        for row in range(rows):
            floor.send(self._redis, work.in_a_row, f"{number}.{row}")
        return rows

    def times_ms(self) -> list[float]:
        return [s * 1000 for _, s in self._redis.zrange(self.done, 0, -1, withscores=True)]

    def stop(self) -> None:
        for loop in self._loops:
            end(loop)


def start(
    module: str, *arguments: str, log: Path, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """A module in a process and group of its own, which is killed when this process dies."""
    tied = ["benchmarks.tied", str(os.getpid()), module, *arguments]
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", *tied],
            env={**env, "PYTHONPATH": str(Path(__file__).parent.parent)},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask its group to end, and after a while end it."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait(condition: Callable[[], bool]) -> None:
    """Look until it is so. Raises TimeoutError where it takes too long."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > give_up_at:
            raise TimeoutError("the benchmark's work did not end")
        time.sleep(LOOK_S)
