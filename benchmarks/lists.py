"""Measures a filtered list among many sessions: ``python -P -m benchmarks.lists [SESSIONS]``.

Creates sessions with a label each, and lists one of the oldest by its label: with the index, and
as on a store that an older version wrote, whose sessions are examined one by one. Prints time,
commands (those in functions included) and bytes of a list, of a create and of a deletion, what the
index keeps in Redis, and what it takes to index the store afterwards.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from redis import Redis

from app.compiler import compile_document
from app.engine import Engine
from app.sessions.listing import SessionsWanted
from app.sessions.submit import About
from app.settings import Settings
from app.store.store import Store, connect
from benchmarks.cost import Queue, read_counters
from leadhand.local.redis_server import RedisServer
from leadhand.models.documents import LoopDocument

SESSIONS = 20_000
ROUNDS = 7
DELETED = 5
WANTED = SessionsWanted(label="L7")
PROGRAM = compile_document(
    LoopDocument.model_validate({"task": "x", "doer": {"command": "true"}, "checkers": ["true"]})
)


class Spent(NamedTuple):
    """What one operation took."""

    ms: float
    commands: float
    bytes: float
    #: The server's time for functions (FCALL).
    functions_us: float


class Listed(NamedTuple):
    """All pages of one list."""

    pages: int
    examined: int
    found: int


def make_engine(url: str) -> Engine:
    """An engine without workers."""
    return Engine(Store(connect(url)), Queue(), Settings(redis_url=url, secret="of the benchmark"))


def create(engine: Engine, number: int) -> str:
    """Create a session with the label L<number>, and return its id."""
    about = About(kind="loop", name="loop", label=f"L{number}")
    return engine.submit.program(PROGRAM, about).session


def list_all(engine: Engine, wanted: SessionsWanted) -> Listed:
    """Read the pages of a list to its end, as `leadhand ls` does."""
    pages, examined, found, cursor = 0, 0, 0, None
    while True:
        page = engine.queries.sessions(wanted, cursor=cursor)
        pages, examined, found = pages + 1, examined + (page.examined or 0), found + len(page.items)
        cursor = page.next
        if cursor is None:
            return Listed(pages, examined, found)


def measure(redis: Redis, act: Callable[[], object], times: int = 1) -> Spent:
    """Measure an operation that is repeated: its time, and the server's counters."""
    functions, before, began = _functions_us(redis), read_counters(redis), time.perf_counter()
    for _ in range(times):
        act()
    took, after = time.perf_counter() - began, read_counters(redis)
    return Spent(
        took * 1000 / times,
        (after.commands - before.commands) / times,
        (after.bytes - before.bytes) / times,
        (_functions_us(redis) - functions) / times,
    )


def _functions_us(redis: Redis) -> int:
    return int(redis.info("commandstats").get("cmdstat_fcall", {}).get("usec", 0))


def main(count: int) -> None:
    """Run all measurements and print them."""
    with tempfile.TemporaryDirectory() as name, RedisServer(Path(name, ".leadhand")) as server:
        redis, engine = Redis.from_url(server.url, decode_responses=True), make_engine(server.url)
        numbers = iter(range(count))
        old = [create(engine, number) for number in islice(numbers, DELETED)]  # loads the library
        rest = count - DELETED
        _print("create", measure(redis, lambda: create(engine, next(numbers)), times=rest))
        rounds = [measure(redis, lambda: list_all(engine, WANTED)) for _ in range(ROUNDS)]
        _print(f"list by label among {count}: {list_all(engine, WANTED)}", _median(rounds))
        kept = int(redis.memory_usage("lh:facts", samples=0) or 0)
        print(f"the index keeps {kept / count:.0f} bytes a session")
        for session in old:
            engine.control.apply(session, "abort")
        _print("delete", measure(redis, lambda: engine.deletion.delete(old.pop()), times=DELETED))


def _median(rounds: list[Spent]) -> Spent:
    return Spent(*(statistics.median(values) for values in zip(*rounds, strict=True)))


def _print(what: str, spent: Spent) -> None:
    print(
        f"{what}: {spent.ms:.2f} ms, {spent.commands:.1f} commands, {spent.bytes:.0f} bytes,"
        f" {spent.functions_us:.0f} µs in functions"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SESSIONS)
