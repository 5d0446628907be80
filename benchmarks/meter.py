"""Reads the counters of a server and the CPU time of processes."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import psutil
from redis import Redis

#: The store's id, its number of sweeps and the fleet's secrets (app/store/keys.py): running workers
#: compare them.
INSTALLATION_KEYS = ("lh:store", "lh:store-past", "lh:epoch", "lh:secret", "lh:secrets-used")


class Reading(NamedTuple):
    """All counters at one moment."""

    #: All commands that the server ran, those within scripts too.
    commands: int
    #: How often the server read from a connection: a pipeline is one.
    round_trips: int
    bytes: int
    server_s: float
    worker_s: float

    def __sub__(self, before: Reading) -> Reading:
        return Reading(*(now - then for now, then in zip(self, before, strict=True)))


class Meter:
    """Reads one server, and subtracts the cost of its own reads."""

    def __init__(self, url: str) -> None:
        self._redis = Redis.from_url(url, decode_responses=True)
        self._binary = Redis.from_url(url)
        self._server = psutil.Process(self._redis.info("server")["process_id"])
        self._look = self._cost_of_a_look()
        self._looks = 0

    def read(self, workers: Iterable[int]) -> Reading:
        """Read the counters of the server and of these process trees."""
        stats, net = self._redis.info("commandstats"), self._redis.info("stats")
        counted = (c for name, c in stats.items() if name not in ("cmdstat_info", "cmdstat_client"))
        reading = Reading(
            sum(command["calls"] for command in counted),
            net["total_reads_processed"],
            net["total_net_input_bytes"] + net["total_net_output_bytes"],
            _cpu_s(self._server),
            sum(_cpu_s(process) for pid in workers for process in _tree(pid)),
        )
        looks, self._looks = self._looks, 0
        looked = Reading(looks, looks, round(looks * self._look), 0, 0)
        return reading - looked if looks else reading

    def count(self, key: str) -> int:
        """The size of a sorted set; counts as one read."""
        self._looks += 1
        return int(self._redis.zcard(key))

    def memory(self) -> int:
        """Bytes that the server's data take."""
        return int(self._redis.info("memory")["used_memory"])

    def empty(self) -> None:
        """Delete all keys but the installation's: a worker stops when its store has lost its id.

        Synchronous, so that no time to free memory is counted for the next run.
        """
        kept = {key: self._binary.dump(key) for key in INSTALLATION_KEYS}
        with self._binary.pipeline(transaction=True) as transaction:
            transaction.execute_command("FLUSHALL", "SYNC")
            for key, value in kept.items():
                if value is not None:
                    transaction.restore(key, 0, value)
            transaction.execute()

    def _cost_of_a_look(self) -> float:
        def moved() -> int:
            net = self._redis.info("stats")
            return int(net["total_net_input_bytes"] + net["total_net_output_bytes"])

        idle = -moved() + moved()
        before = moved()
        for _ in range(100):
            self._redis.zcard("lh:status:active")
        return (moved() - before - idle) / 100


class Resident(NamedTuple):
    """Memory of one process in MB: all that it maps, and its fair share of what it shares."""

    rss: float
    pss: float


def resident(pid: int) -> Resident:
    """How much memory a process holds now."""
    full = psutil.Process(pid).memory_full_info()
    return Resident(full.rss / 2**20, getattr(full, "pss", full.rss) / 2**20)


def machine(url: str) -> str:
    """The machine and the versions, in one line."""
    server = Redis.from_url(url, decode_responses=True).info("server")
    name = server.get("server_name", "redis")
    number = server.get("valkey_version", server["redis_version"])
    packages = ("celery", "kombu", "redis", "pydantic")
    found = [*packages, *(["dramatiq"] if find_spec("dramatiq") else [])]
    versions = ", ".join(f"{package} {version(package)}" for package in found)
    return (
        f"{_cpu_name()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, {name} {number}, {versions}"
    )


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _tree(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    return []


def _cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process and its ended children."""
    with suppress(psutil.Error):
        used = process.cpu_times()
        return float(used.user + used.system + used.children_user + used.children_system)
    return 0.0
