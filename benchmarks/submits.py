"""Measures the CPU time of a submit over REST and from Python: ``python -P -m benchmarks.submits``.

The worker is stopped while submits are measured. The CPU time of the API's processes, of the client
and of Redis is that of the processes themselves. ``--against FOLDER`` measures the server of
another checkout too, in turn with this one: on a shared machine, only ratios within a run are
meaningful.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from redis import Redis

from app.engine import Engine
from app.sessions.submit import About
from app.settings import Settings
from benchmarks import programs
from benchmarks.meter import Meter, machine
from leadhand.local.processes import free_port
from leadhand.local.redis_server import RedisServer
from leadhand.models.documents import LoopDocument
from tasks.bootstrap import make_engine

HERE = Path(__file__).resolve().parents[1]
TOKEN = "of-the-benchmark-" + "x" * 16
#: Submits before those that are measured.
FIRST = 30
WAIT_S = 30.0


class Spent(NamedTuple):
    """CPU time of one submit in ms: the submitting process, the API, Redis."""

    client: float
    api: float
    redis: float


def loop_fields(cwd: Path) -> dict[str, Any]:
    """The document of a loop that is submitted."""
    fields = {"kind": "loop", "task": "t", "checkers": ["true"], "cwd": str(cwd)}
    return {**fields, "doer": {"command": "true"}}


class Served:
    """The server of one checkout: Redis, a worker and an API process."""

    def __init__(self, checkout: Path, folder: Path, stack: ExitStack) -> None:
        folder.mkdir()
        self._folder, self._checkout = folder, checkout
        self.url = stack.enter_context(RedisServer(folder / ".leadhand")).url
        self._port = free_port()
        self.env = {
            "LEADHAND_REDIS_URL": self.url, "LEADHAND_SECRET": "s", "LEADHAND_API_TOKEN": TOKEN,
            "LEADHAND_STATE_DIR": str(folder / "state"), "LEADHAND_CONCURRENCY": "2",
            "LEADHAND_SPILL": str(folder / "spill"), "LEADHAND_WORKER_NAME": "bench",
            "LEADHAND_API_BIND": f"127.0.0.1:{self._port}",
        }  # fmt: skip
        self._processes = [self._start(stack, name) for name in ("worker", "api")]
        wait_for(lambda: Redis.from_url(self.url).exists("lh:workers"))
        wait_for(self._is_served)
        redis = Redis.from_url(self.url, decode_responses=True)
        self._server = psutil.Process(redis.info("server")["process_id"])
        self._meter = Meter(self.url)
        wait_for(lambda: redis.exists("lh:store"))

    def over_rest(self, count: int) -> Spent:
        """Submit a loop again and again over one connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        body = json.dumps(loop_fields(self._folder))
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}

        def submit() -> None:
            connection.request("POST", "/v1/sessions", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 202:
                raise RuntimeError(f"the API answered {answer.status}: {text.decode()}")

        for _ in range(FIRST):
            submit()
        api, server, own = self._api_s(), _cpu_s(self._server), time.process_time()
        for _ in range(count):
            submit()
        own = time.process_time() - own
        spent = (own, self._api_s() - api, _cpu_s(self._server) - server)
        return Spent(*(seconds / count * 1000 for seconds in spent))

    def from_python(self, what: str, count: int) -> Spent:
        """Submit from a process with the engine of this checkout."""
        command = [sys.executable, "-P", __file__, "--only", what, "--submits", str(count)]
        env = {**os.environ, **self.env, "PYTHONPATH": str(self._checkout)}
        server = _cpu_s(self._server)
        run = subprocess.run(command, env=env, cwd="/", check=True, capture_output=True)
        server = _cpu_s(self._server) - server
        return Spent(float(run.stdout), 0.0, server / (count + FIRST) * 1000)

    @contextmanager
    def worker_stopped(self) -> Iterator[None]:
        """Stop the worker for as long as the block runs, then remove what was submitted."""
        group = self._processes[0].pid
        wait_for(lambda: Redis.from_url(self.url).exists("lh:workers"))
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            self._meter.empty()
            os.killpg(group, signal.SIGCONT)

    def _start(self, stack: ExitStack, name: str) -> subprocess.Popen[bytes]:
        log = stack.enter_context((self._folder / f"{name}.log").open("wb"))
        command = ["benchmarks.tied", str(os.getpid()), "leadhand.serve", name]
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", *command],
            env={**os.environ, **self.env, "PYTHONPATH": str(self._checkout)},
            cwd=self._folder, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        stack.callback(process.wait)
        stack.callback(os.killpg, process.pid, signal.SIGTERM)
        return process

    def _is_served(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def _api_s(self) -> float:
        top = psutil.Process(self._processes[1].pid)
        return sum(_cpu_s(process) for process in (top, *top.children(recursive=True)))


def wait_for(condition: Any) -> None:
    """Look until the condition holds. Raises TimeoutError."""
    give_up_at = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > give_up_at:
            raise TimeoutError("a service did not start")
        time.sleep(0.05)


def submit_here(env: Mapping[str, str], what: str, count: int) -> float:
    """Submit in this process; the CPU time of one submit in ms."""
    engine, _ = make_engine(Settings.from_env(env))
    submit = _submit_program if what == "program" else _submit_document
    for _ in range(FIRST):
        submit(engine)
    began = time.process_time()
    for _ in range(count):
        submit(engine)
    return (time.process_time() - began) / count * 1000


WAYS = {
    "rest": "a loop over REST",
    "document": "a loop from Python",
    "program": "a program of ten steps from Python",
}
PROGRAM = programs.sequence(10, quick=True)
ABOUT = About(kind="workflow", name="submitted")
DOCUMENT = LoopDocument.model_validate(
    {name: value for name, value in loop_fields(Path("/")).items() if name != "cwd"}
)


def _submit_program(engine: Engine) -> None:
    engine.submit.program(PROGRAM, ABOUT)


def _submit_document(engine: Engine) -> None:
    engine.submit.document(DOCUMENT, free=True)


def _cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def main(arguments: Sequence[str]) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.submits", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--submits", type=int, default=300)
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--only", choices=("program", "document"), help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.only:
        print(submit_here(os.environ, asked.only, asked.submits))
        return
    checkouts = {"this": HERE} | ({"the other": asked.against.resolve()} if asked.against else {})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = {name: Served(path, folder / name, stack) for name, path in checkouts.items()}
        print(f"{machine(sides['this'].url)}; load {os.getloadavg()[0]:.1f}\n")
        found: dict[tuple[str, str], list[Spent]] = {}
        for _ in range(asked.rounds):
            for key, spent in measure_round(sides, asked.ways, asked.submits):
                found.setdefault(key, []).append(spent)
        print(table(found))


def measure_round(
    sides: Mapping[str, Served], ways: Sequence[str], count: int
) -> Iterator[tuple[tuple[str, str], Spent]]:
    """Measure each way on each side, while no worker works."""
    with ExitStack() as stopped:
        for side in sides.values():
            stopped.enter_context(side.worker_stopped())
        for way in ways:
            for name, side in sides.items():
                spent = side.over_rest(count) if way == "rest" else side.from_python(way, count)
                yield (way, name), spent


def table(found: Mapping[tuple[str, str], Sequence[Spent]]) -> str:
    """The medians with their spread, as a Markdown table."""
    ratios = []
    lines = ["| CPU ms of a submit | checkout | client | API | Redis |", "|---|---|--:|--:|--:|"]
    for (way, name), runs in found.items():
        cells = [_cell([run[column] for run in runs]) for column in range(3)]
        lines.append(f"| {WAYS[way]} | {name} | {' | '.join(cells)} |")
        if others := found.get((way, "the other")):
            pairs = [_own_ms(run) / _own_ms(other) for run, other in zip(runs, others, strict=True)]
            if runs is not others:
                ratios.append(f"{WAYS[way]}: {statistics.median(pairs):.2f} of the other checkout")
    return "\n".join([*lines, "", *ratios])


def _own_ms(spent: Spent) -> float:
    """The time of the API, or of the client if it has none."""
    return spent.api or spent.client


def _cell(values: Sequence[float]) -> str:
    if not any(values):
        return ""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main(sys.argv[1:])
