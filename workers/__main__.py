"""Runs a worker: ``python -P -m workers``, told by its environment what it is."""

from __future__ import annotations

import logging
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

from celery import Celery
from celery.bootsteps import StartStopStep
from celery.signals import (
    setup_logging,
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)
from celery.worker.components import Pool

from app.engine import Engine
from app.errors import LeadhandError, StoreAway
from app.logs import log_to_stderr
from app.parent import die_with, hide
from app.settings import Settings
from app.sweeping import give_up_gone
from tasks import tracing
from tasks.deliver import Deliverer
from tasks.steps import BOUND
from tasks.sweep import Sweeper
from tasks.taking import Taking
from tasks.wiring import make_engine
from workers.agents.book import AgentBook
from workers.agents.usable import agents_here
from workers.attempt import Attempts
from workers.batched_events import BatchingConsumer
from workers.drain import Drain
from workers.inventory import Inventory
from workers.lease import Heart
from workers.predecessors import is_gone
from workers.shelf import Shelf
from workers.spills import Spills

#: What every place offers; steps that need no folder travel on the names without a place.
QUEUES = ("agents", "checks", "tools")
#: Messages of this queue are left to Celery: what their steps do takes longer than a message.
LONG = "agents"
#: A worker waits longer for Redis than a caller of the API does.
TRIES = 6


def main() -> int:
    """Work until TERM; the exit code is Celery's."""
    hide()
    try:
        settings = Settings.from_env()
        tracing.check(settings)
        engine, celery = make_engine(settings, tries=TRIES)
        _read(settings.agents_files)
    except LeadhandError as error:
        sys.stderr.write(f"worker cannot start: {error}\n")
        return 1
    # Celery is told that the log is set up, and keeps its hands off it.
    setup_logging.connect(lambda **_: log_to_stderr(settings.log), weak=False)
    log_to_stderr(settings.log)
    name = settings.worker_name or f"{socket.gethostname()}-{os.getpid()}"
    queues = tuple(f"{queue}@{settings.place}" for queue in QUEUES) + QUEUES
    drain = Drain()
    _in_the_pool(settings, name, queues, drain)
    _beside_the_pool(engine, celery, settings, name, queues, drain)
    return _work(celery, settings, name, queues)


def _work(celery: Celery, settings: Settings, name: str, queues: tuple[str, ...]) -> int:
    worker = celery.Worker(
        hostname=f"{name}@{socket.gethostname()}",
        pool_cls="prefork",
        consumer_cls=BatchingConsumer,
        concurrency=settings.concurrency,
        queues=list(queues),
        loglevel="INFO",
        task_events=True,
        without_gossip=True,
        without_mingle=True,
        quiet=settings.log == "json",
    )
    worker.start()
    return int(worker.exitcode or 0)


def _in_the_pool(settings: Settings, name: str, queues: tuple[str, ...], drain: Drain) -> None:
    """What each pool process does first: connections and threads of its own."""
    host = os.getpid()

    def begin(**_: object) -> None:
        die_with(host)
        end = tracing.begin(settings, "leadhand-worker")
        worker_process_shutdown.connect(lambda **_: end(), weak=False)
        engine, celery = make_engine(settings, tries=TRIES)
        # Beats have a connection of their own, and none may take as long as a third of a lease.
        beats, _celery = make_engine(settings, tries=0, timeout_s=min(5.0, settings.lease_s / 3))
        heart = Heart(beats, draining=drain.under_way)
        books = _Books(settings)
        BOUND.carry = attempts = Attempts(
            engine,
            worker=f"{name}/{os.getpid()}",
            agents=books.current,
            heart=heart,
            draining=drain.under_way,
        )
        worker_process_shutdown.connect(lambda **_: attempts.close(), weak=False)
        if settings.traces == "off":  # a trace is of Celery's own messages
            taken = [queue for queue in queues if not queue.startswith(LONG)]
            nodename = f"{name}@{socket.gethostname()}"
            Taking(celery, taken, hostname=nodename, draining=drain.under_way).begin()

    worker_process_init.connect(begin, weak=False)


def _beside_the_pool(
    engine: Engine,
    celery: Celery,
    settings: Settings,
    name: str,
    queues: tuple[str, ...],
    drain: Drain,
) -> None:
    """What the host does beside its pool: sweep, deliver webhooks, and tell what it is."""
    sweeper, deliverer, spills = Sweeper(engine), Deliverer(engine), Spills(engine)
    books, shelf = _Books(settings), Shelf(settings.tools)
    inventory = Inventory(
        engine,
        name=name,
        queues=queues,
        agents=lambda: agents_here(books.current()),
        tools=shelf.tools,
    )

    class WithThePool(StartStopStep):
        """What needs no broker does not wait for it: that may be away for long."""

        requires = (Pool,)

        def start(self, _worker: object) -> None:
            sweeper.start()
            deliverer.start()
            spills.start()

    def ready(**_: object) -> None:
        if settings.own_redis:
            with suppress(StoreAway):  # then their leases are waited for
                give_up_gone(engine, is_gone)
        inventory.start()

    def end(**_: object) -> None:
        sweeper.stop()
        deliverer.stop()
        spills.stop()
        inventory.stop()

    celery.steps["worker"].add(WithThePool)
    worker_ready.connect(ready, weak=False)
    worker_shutting_down.connect(lambda **_: drain.begin(), weak=False)
    worker_shutdown.connect(end, weak=False)


def _read(files: tuple[Path, ...]) -> AgentBook:
    """The book of those files that are there: one may be written while the worker runs."""
    return AgentBook.load([file for file in files if file.is_file()])


class _Books:
    """The agents' book, read anew when one of its files changes; a broken one is not taken."""

    def __init__(self, settings: Settings) -> None:
        self._files = settings.agents_files
        self._book = _read(self._files)
        self._seen = self._stamp()

    def current(self) -> AgentBook:
        """The newest book that could be read."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self._book = _read(self._files)
            except LeadhandError as error:
                logging.getLogger(__name__).warning("agents kept as they were: %s", error)
        return self._book

    def _stamp(self) -> tuple[float, ...]:
        return tuple(path.stat().st_mtime if path.exists() else 0.0 for path in self._files)


if __name__ == "__main__":
    sys.exit(main())
