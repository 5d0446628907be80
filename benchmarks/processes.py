"""Measures processes: idle memory, submits over REST, and the recovery time of a lost step."""

from __future__ import annotations

import http.client
import json
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from app.core.addresses import SessionRef
from app.engine import Engine
from app.sessions.submit import About
from app.settings import Settings
from app.store.store import Store, connect
from benchmarks import plain, programs
from benchmarks.cost import Queue
from benchmarks.meter import Resident, resident
from benchmarks.sides import SECRET, Ours, Plain, end, start, wait
from leadhand.local.processes import free_port

SUBMITS = 200
LEASE_S = 3.0
TOKEN = "of-the-benchmark-" + "x" * 16


class Submits(NamedTuple):
    """How long submitting took, one after the other, and the CPU of who was asked."""

    name: str
    per_s: float
    p50_ms: float
    p95_ms: float
    cpu_ms: float


class Api:
    """One API process, as it is served."""

    def __init__(self, ours: Ours, folder: Path) -> None:
        self._port = free_port()
        env = {
            **ours.env,
            "LEADHAND_API_BIND": f"127.0.0.1:{self._port}",
            "LEADHAND_API_TOKEN": TOKEN,
        }
        self._process = start("leadhand.serve", "api", log=folder / "api.log", env=env)
        wait(self._answers)

    def idle(self) -> list[Resident]:
        """Memory of the arbiter and of the processes that serve."""
        top = psutil.Process(self._process.pid)
        return [resident(pid) for pid in (top.pid, *(child.pid for child in top.children()))]

    def submits(self, cwd: Path) -> Submits:
        """Submit a loop again and again over one connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        fields = {"kind": "loop", "task": "t", "checkers": ["true"], "cwd": str(cwd)}
        body = json.dumps({**fields, "doer": {"command": "true"}})
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        before, times = self._cpu_s(), []
        for _ in range(SUBMITS):
            began = time.perf_counter()
            connection.request("POST", "/v1/sessions", body, headers)
            answer = connection.getresponse()
            said = answer.read()
            times.append(time.perf_counter() - began)
            if answer.status != 202:
                raise RuntimeError(f"the API answered {answer.status}: {said.decode()}")
        return _submits("leadhand, over REST", times, self._cpu_s() - before)

    def stop(self) -> None:
        end(self._process)

    def _answers(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2)
            connection.request("GET", "/healthz")
            return connection.getresponse().status < 500
        except OSError:
            return False

    def _cpu_s(self) -> float:
        top = psutil.Process(self._process.pid)
        used = [process.cpu_times() for process in (top, *top.children(recursive=True))]
        return sum(one.user + one.system for one in used)


def submits_in_process(ours: Ours, celery: Plain) -> list[Submits]:
    """The same from Python: a session of W1 by the engine, and a chain by Celery."""
    program = programs.sequence(10, quick=True)
    about = About(kind="workflow", name="submitted")
    found = []
    for name, submit in (
        ("leadhand, from Python", lambda _: ours.engine.submit.program(program, about)),
        (
            "celery, a chain of 10",
            lambda n: plain.send_sequence(celery.app, 10, str(n), kept=False),
        ),
    ):
        before, times = time.process_time(), []
        for number in range(SUBMITS):
            began = time.perf_counter()
            submit(number)
            times.append(time.perf_counter() - began)
        found.append(_submits(name, times, time.process_time() - before))
    return found


def idle_worker(ours: Ours) -> dict[str, Resident]:
    """Memory of the parent and of each process of its pool."""
    top = psutil.Process(ours.pids()[0])
    pool = {f"pool process {n}": resident(c.pid) for n, c in enumerate(top.children(), 1)}
    return {"worker": resident(top.pid), **pool}


def again_s(url: str) -> float:
    """Seconds until the step of a killed worker is claimed again.

    Its claim is made here and never beaten for, which is all that Redis sees of a killed worker.
    """
    settings = {"LEADHAND_REDIS_URL": url, "LEADHAND_SECRET": SECRET, "LEADHAND_LEASE_S": LEASE_S}
    given = Settings.from_env({name: str(value) for name, value in settings.items()})
    engine = Engine(Store(connect(url)), Queue(), given)  # only the sweep sends hints
    program = programs.sequence(1, quick=False)
    session = engine.submit.program(program, About(kind="workflow", name="killed")).session
    began = time.perf_counter()
    answer = engine.attempts.claim(
        SessionRef(session, session), "s1", nonce="killed", worker="killed"
    )
    assert answer.word == "granted"
    wait(lambda: engine.queries.session(session).status == "completed")
    return time.perf_counter() - began


def _submits(name: str, times: list[float], cpu_s: float) -> Submits:
    times.sort()
    return Submits(
        name,
        1 / statistics.fmean(times),
        times[len(times) // 2] * 1000,
        times[len(times) * 95 // 100] * 1000,
        cpu_s / len(times) * 1000,
    )
