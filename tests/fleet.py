"""Real workers as processes on a real Redis, and an engine to talk to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from app.engine import Engine
from app.settings import Settings
from leadhand.models.documents import Doer, LoopDocument, WorkflowDocument
from leadhand.models.views.result import ResultView
from tasks.bootstrap import make_engine
from tests.redis_users import of_worker
from tests.waiting import wait_until

#: What the workers of a test write into the folder of its sessions, where it would change while
#: checkers run.
IGNORED = ".gitignore\n*.log\nspill/\n"
RUNS = ("active", "waiting", "stopping", "exiting", "aborting")


class Fleet:
    """One Redis and any number of workers; all of them end with the test."""

    def __init__(
        self, folder: Path, redis_url: str, broker_url: str, *, lease_s: float, **env: str
    ) -> None:
        self.folder = folder
        (folder / ".gitignore").write_text(IGNORED)
        self.env = {
            **os.environ,
            "LEADHAND_REDIS_URL": redis_url,
            "LEADHAND_BROKER_URL": broker_url,
            "LEADHAND_SECRET": "secret of the test",
            "LEADHAND_LEASE_S": str(lease_s),
            "LEADHAND_CONCURRENCY": "2",
            "LEADHAND_SPILL": str(folder / "spill"),
            **env,
        }
        self.engine: Engine
        self.engine, self.celery = make_engine(Settings.from_env(self.env))
        self._workers: list[subprocess.Popen[bytes]] = []

    def worker(
        self, name: str, *, within: Sequence[str] = (), **env: str
    ) -> subprocess.Popen[bytes]:
        """Start a worker, and wait for its inventory; `within` is a command that runs it."""
        process = self.begin(name, within=within, **env)
        wait_until(lambda: any(w.name == name for w in self.engine.fleet.inventories()), timeout=20)
        return process

    def begin(
        self, name: str, *, within: Sequence[str] = (), **env: str
    ) -> subprocess.Popen[bytes]:
        """Start a worker, and wait for nothing."""
        as_worker = {"LEADHAND_REDIS_URL": of_worker(self.env["LEADHAND_REDIS_URL"])}
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*within, sys.executable, "-P", "-m", "leadhand.serve", "worker"],
                cwd=self.folder,
                env={**self.env, "LEADHAND_WORKER_NAME": name, **as_worker, **env},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._workers.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL to the worker and its pool, as when the machine is gone."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for process in self._workers:
            if process.poll() is None:
                self.kill(process)
        self.celery.close()

    def script(self, name: str, text: str) -> str:
        """A program of the test's in the working folder, as a command."""
        (self.folder / name).write_text(text)
        return f"{sys.executable} {name}"

    def loop(self, doer: str, *checkers: str, **more: object) -> str:
        """Submit a loop that works in the fleet's folder."""
        return self.submitted(*checkers, doer=Doer(command=doer), **more)

    def submitted(self, *checkers: str, **fields: object) -> str:
        """Submit a loop with any doer."""
        given = {
            "task": "make it good",
            "cwd": str(self.folder),
            "baseline": False,
            "checkers": checkers,
            **fields,
        }
        return self.engine.submit.document(LoopDocument.model_validate(given)).session

    def workflow(self, doer: str, *phases: dict[str, object]) -> str:
        """Submit a workflow that works in the fleet's folder."""
        document = WorkflowDocument.model_validate(
            {
                "name": "test",
                "cwd": str(self.folder),
                "doer": Doer(command=doer),
                "phases": phases,
            }
        )
        return self.engine.submit.document(document).session

    def ended(self, session: str, timeout: float = 25) -> ResultView:
        """The result, once there is one."""
        wait_until(lambda: self.engine.queries.session(session).status not in RUNS, timeout=timeout)
        return self.engine.queries.result(session)

    def outcomes(self, session: str) -> dict[str, int]:
        """How many outcomes were recorded at each address."""
        counted: dict[str, int] = {}
        for event in self.engine.queries.events(session, limit=10_000):
            if event.type == "step.settled" and event.address:
                counted[event.address] = counted.get(event.address, 0) + 1
        return counted
