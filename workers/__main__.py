"""Runs a worker, configured by environment variables: ``python -P -m leadhand.serve worker``."""

from __future__ import annotations

import gc
import multiprocessing
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from celery import Celery
from celery.bootsteps import StartStopStep
from celery.signals import (
    setup_logging,
    task_received,
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)
from celery.worker import state
from celery.worker.components import Pool

from app.engine import Engine
from app.logs import log_doubts, log_to_stderr
from app.sessions.outputs import Outputs
from app.settings import Settings, doubts
from app.store.identity import memory_of
from app.store.store import Store, connect
from leadhand.errors import LeadhandError, SettingInvalid
from leadhand.process_guard import end_with_parent, hide
from tasks import tracing
from tasks.bootstrap import examine, make_engine, refusal
from tasks.periodic import REST_S, Examiner, Pace, Prober, SecretRenewal, Sweeper
from tasks.steps import BOUND
from tasks.webhook_delivery import Deliverer
from workers.attempt.attempt import Attempts
from workers.attempt.heartbeat import Heartbeats
from workers.attempt.inline_watchdog import InlineWatchdog
from workers.attempt.output_writer import OutputWriter
from workers.folders.spill import SpillCleanup
from workers.git.audit import OrphanCleanup
from workers.git.cleaning import WorktreeRescue
from workers.host.event_batching import BatchingConsumer
from workers.host.inventory import Inventory
from workers.host.join_fleet import NameLock, ServedStore, join_fleet
from workers.host.pool import DeadWorkers, Intake, LentSlots, PoolSize, ReplacingPool
from workers.processes.user_folders import claim_folder
from workers.processes.warm_pool import CallSlots
from workers.registry.agents import agents_here, faults_of
from workers.registry.registries import Registries, Registry
from workers.tool_servers.folder_reports import FolderReporter, registry_for_steps
from workers.tool_servers.manager import ToolServers, servers_folder

#: The queues of every place, as QUEUE@PLACE; a step without a folder goes to the bare name.
QUEUES = ("agents", "checks", "tools")
#: Tries per Redis call: a worker waits longer for Redis than the API does.
TRIES = 6
#: A server that takes longer to accept output loses it.
OUTPUT_TIMEOUT_S = 1.0
#: Celery's blueprint state of a worker that neither starts nor shuts down.
_RUN = 1


def main() -> int:
    """Run a worker until SIGTERM; return Celery's exit code, or 1 if the worker cannot start."""
    hide()
    try:
        settings = Settings.from_env()
        tracing.check(settings)
        engine, celery = make_engine(settings, tries=TRIES)
        engine.guard.remember_in(memory_of(settings))
        warnings = examine(engine)
        _claim_spill(settings.spill)
    except LeadhandError as error:
        sys.stderr.write(f"{refusal('worker', error)}\n")
        return 1
    # A receiver of this signal keeps Celery from configuring the log itself.
    setup_logging.connect(lambda **_: log_to_stderr(settings.log), weak=False)
    log_to_stderr(settings.log)
    log_doubts([*doubts(settings), *warnings])
    name = settings.worker_name or f"{socket.gethostname()}-{os.getpid()}"
    queues = tuple(f"{queue}@{settings.place}" for queue in QUEUES) + QUEUES
    drain, served, slots, calls = Drain(), ServedStore(), LentSlots(), CallSlots()
    engine.guard.listeners.append(served.update)
    try:
        lock = join_fleet(engine, name)
    except LeadhandError as error:
        sys.stderr.write(f"{refusal('worker', error)}\n")
        return 1
    intake = Intake(Path(settings.spill))
    _set_up_pool_processes(settings, name, drain, served, intake, slots, calls)
    pace = Pace(may_rest=settings.own_redis, is_busy=lambda: bool(state.reserved_requests))
    size = PoolSize(
        slots,
        least=_least(settings),
        most=settings.concurrency,
        draining=drain.under_way,
        pace=pace,
    )
    worker_ready.connect(lambda sender, **_: size.watch(sender), weak=False)
    task_received.connect(lambda **_: pace.touch(), weak=False)
    watchdog = _watchdog(engine, settings, name, drain, served, calls, pace)
    _run_host_threads(engine, celery, settings, name, queues, drain, lock, intake, watchdog, pace)
    return _work(celery, settings, name, queues)


def _least(settings: Settings) -> int:
    """How many processes the pool has while there is little to do."""
    return min(settings.idle_processes or settings.concurrency, settings.concurrency)


def _work(celery: Celery, settings: Settings, name: str, queues: tuple[str, ...]) -> int:
    worker = celery.Worker(
        hostname=f"{name}@{socket.gethostname()}",
        pool_cls=ReplacingPool,
        consumer_cls=BatchingConsumer,
        concurrency=_least(settings),
        queues=list(queues),
        loglevel="INFO",
        task_events=True,
        # Flower watches fleets; each of these events costs as much as a sweep.
        heartbeat_interval=REST_S * 6 if settings.own_redis else None,
        without_gossip=True,
        without_mingle=True,
        quiet=settings.log == "json",
    )
    # Without this, each process of the pool gets its own copy of all objects with its first garbage
    # collection: 48 MB instead of 31.
    gc.collect()
    gc.freeze()
    worker.start()
    return int(worker.exitcode or 0)


def _set_up_pool_processes(
    settings: Settings,
    name: str,
    drain: Drain,
    served: ServedStore,
    intake: Intake,
    slots: LentSlots,
    calls: CallSlots,
) -> None:
    """Give each pool process its own connections, heartbeat thread and attempts."""
    host = os.getpid()

    def begin(**_: object) -> None:
        end_with_parent(host)
        end = tracing.begin(settings, "leadhand-worker")
        worker_process_shutdown.connect(lambda **_: end(), weak=False)
        engine, _celery = make_engine(settings, tries=TRIES)
        # Heartbeats have their own connection; no call on it may take longer than lease/3.
        beats, _celery = make_engine(settings, tries=0, timeout_s=min(5.0, settings.lease_s / 3))
        for one in (engine, beats):
            one.guard.remember_in(served)
            one.store.expected_identity = served.expected
        heart = Heartbeats(beats, draining=drain.under_way, lend=slots.lender())
        registries = Registries(settings, servers_folder(host))
        BOUND.carry = attempts = Attempts(
            engine,
            worker=f"{name}/{os.getpid()}",
            agents=registries.base.agents.current,
            heart=heart,
            draining=drain.under_way,
            closed=served.is_closed,
            paused=intake.is_paused,
            on_no_room=intake.pause,
            shelf=registries.base.shelf,
            of_folder=registry_for_steps(engine, registries),
            slot=calls.own(),
            outputs=OutputWriter(Outputs(_store_for_output(settings, served)).append),
        )
        worker_process_shutdown.connect(lambda **_: attempts.close(), weak=False)

    worker_process_init.connect(begin, weak=False)


def _watchdog(
    engine: Engine,
    settings: Settings,
    name: str,
    drain: Drain,
    served: ServedStore,
    calls: CallSlots,
    pace: Pace,
) -> InlineWatchdog:
    """The watchdog of inline calls, with a connection of its own for their heartbeats."""
    beats, _celery = make_engine(settings, tries=0, timeout_s=min(5.0, settings.lease_s / 3))
    beats.guard.remember_in(served)
    beats.store.expected_identity = served.expected
    heart = Heartbeats(beats, draining=drain.under_way)
    return InlineWatchdog(engine, calls, heart, worker=name, pace=pace)


def _store_for_output(settings: Settings, served: ServedStore) -> Store:
    """A store with its own connection: a server slow to accept output must delay nothing else."""
    store = Store(
        connect(settings.redis_url, tries=0, timeout_s=OUTPUT_TIMEOUT_S), prefix=settings.prefix
    )
    store.expected_identity = served.expected
    return store


def _run_host_threads(
    engine: Engine,
    celery: Celery,
    settings: Settings,
    name: str,
    queues: tuple[str, ...],
    drain: Drain,
    lock: NameLock,
    intake: Intake,
    watchdog: InlineWatchdog,
    pace: Pace,
) -> None:
    """Run the threads of the parent process: sweeper, webhooks, cleanups and inventory."""
    registries = Registries(settings, servers_folder(os.getpid()), logs_faults=True)
    host_threads = [
        Prober(engine, on_spill=intake.update, pace=pace),
        watchdog,
        *_host_threads(engine, registries, name, pace),
    ]
    consumed, dead_workers = ConsumedQueues(), DeadWorkers(engine)
    inventory = _inventory(engine, registries.base, name, queues, consumed, lock, pace)

    class WithThePool(StartStopStep):
        """Starts the threads with the pool, before the broker is reached: it may be down."""

        requires = (Pool,)

        def start(self, _worker: object) -> None:
            for one in host_threads:
                one.start()

    def ready(sender: object, **_: object) -> None:
        consumed.watch(sender)
        intake.watch(sender)
        if settings.own_redis:
            dead_workers.start()
        inventory.start()

    def end(**_: object) -> None:
        for one in host_threads:
            one.stop()
        inventory.stop()

    celery.steps["worker"].add(WithThePool)
    worker_ready.connect(ready, weak=False)
    worker_shutting_down.connect(lambda **_: drain.begin(), weak=False)
    worker_shutdown.connect(end, weak=False)


class _Thread(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...


def _host_threads(
    engine: Engine, registries: Registries, name: str, pace: Pace
) -> Sequence[_Thread]:
    """The sweeper, webhooks, cleanups and MCP servers."""
    hosts = engine.settings.tool_hosts
    return [
        Sweeper(engine, pace=pace),
        Deliverer(engine, pace=pace),
        SpillCleanup(engine),
        WorktreeRescue(engine),
        OrphanCleanup(engine),
        SecretRenewal(engine),
        Examiner(engine),
        ToolServers(registries.folder, registries.base.servers, hosts=hosts, pace=pace),
        FolderReporter(engine, registries, worker=name, pace=pace),
    ]


def _inventory(
    engine: Engine,
    registry: Registry,
    name: str,
    queues: tuple[str, ...],
    consumed: ConsumedQueues,
    lock: NameLock,
    pace: Pace,
) -> Inventory:
    agents = registry.agents
    return Inventory(
        engine,
        name=name,
        queues=queues,
        agents=lambda: agents_here(agents.current()),
        faults=lambda: faults_of(agents.current()),
        tools=registry.shelf.tools,
        consumes=consumed.queues,
        lock=lock,
        pace=pace,
    )


def _claim_spill(folder: Path) -> None:
    """Raise SettingInvalid if another user could read or replace files in the spill folder."""
    try:
        claim_folder(folder)
    except OSError as error:
        raise SettingInvalid("LEADHAND_SPILL", str(folder), str(error)) from error


class Drain:
    """A flag in shared memory, seen by every process forked after its creation."""

    def __init__(self) -> None:
        self._flag = multiprocessing.get_context("fork").Value("b", 0, lock=False)

    def begin(self) -> None:
        """Set the flag, shared by the worker's processes, by which no new step starts."""
        self._flag.value = 1

    def under_way(self) -> bool:
        """Whether the worker is shutting down."""
        return bool(self._flag.value)


class ConsumedQueues:
    """Reads the queues from Celery's consumer; safe to call from any thread."""

    def __init__(self) -> None:
        self._consumer: Any = None

    def watch(self, consumer: object) -> None:
        """Set the Celery consumer whose queues `queues` returns from now on."""
        self._consumer = consumer

    def queues(self) -> tuple[str, ...] | None:
        """Return the queues that this worker consumes now, sorted; empty if disconnected.

        Empty while the worker shuts down or has no connection to the broker; None before start.
        """
        if self._consumer is None:
            return None
        tasks = self._consumer.task_consumer  # None between two connections
        if tasks is None or self._consumer.controller.blueprint.state != _RUN:
            return ()
        return tuple(sorted(q.name for q in list(tasks.queues) if tasks.consuming_from(q.name)))


if __name__ == "__main__":
    sys.exit(main())
