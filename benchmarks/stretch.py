"""Counts calls and bytes of a worker's own part of the work, without Celery."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from redis import Redis

from app.core.addresses import SessionRef
from app.core.program import Program
from app.core.records import Hint
from app.engine import Engine
from app.sessions.submit import About
from app.settings import Settings
from app.store.store import Store, connect
from benchmarks import programs
from benchmarks.cost import Queue
from workers.attempt.attempt import Attempts
from workers.attempt.heartbeat import Heartbeats
from workers.registry.agents import AgentBook


class Calls(NamedTuple):
    """Per step."""

    round_trips: float
    scripts: float
    commands: float
    bytes: float
    hints: float


def stretch(
    url: str, folder: Path, *, sessions: int, beside: int = 0, program: Program | None = None
) -> Calls:
    """Carry out so many sessions, with others that wait beside them, and count."""
    program = program or programs.sequence(10, quick=True)
    queue = Queue()
    settings = Settings(
        redis_url=url, secret="of the benchmark", spill=folder / "spill", tools=[folder / "tools"]
    )
    engine = Engine(Store(connect(url)), queue, settings)
    attempts = Attempts(
        engine,
        worker="counted",
        agents=lambda: AgentBook(agents={}),
        heart=Heartbeats(Engine(Store(connect(url)), queue, settings)),
    )
    about = About(kind="workflow", name="counted", cwd=str(folder))
    for _ in range(beside):
        engine.submit.program(program, about)
    queue.hints.clear()
    refs = []
    for _ in range(sessions + 1):
        session = engine.submit.program(program, about).session
        refs.append((SessionRef(session, session), list(queue.hints)))
        queue.hints.clear()
    redis = Redis.from_url(url, decode_responses=True)
    # The first one is not counted, because it loads the scripts.
    _carry_out(attempts, queue, *refs.pop(0))
    before = _read_counters(redis)
    hints = sum(_carry_out(attempts, queue, ref, first) for ref, first in refs)
    spent = [now - then for now, then in zip(_read_counters(redis), before, strict=True)]
    attempts.close()
    steps = sum(int(engine.store.fields(ref)["steps"]) for ref, _ in refs)
    return Calls(*(one / steps for one in spent), hints=hints / steps)


def _carry_out(attempts: Attempts, queue: Queue, ref: SessionRef, first: list[Hint]) -> int:
    """Carry out a session; returns the number of hints."""
    todo, count = list(first), 0
    while todo:
        count += 1
        todo += attempts(ref, todo.pop(0).address) or []
        todo += queue.hints
        queue.hints.clear()
    return count


def _read_counters(redis: Redis) -> tuple[int, int, int, int]:
    stats, net = redis.info("commandstats"), redis.info("stats")
    return (
        net["total_reads_processed"],
        sum(stats.get(f"cmdstat_{way}", {"calls": 0})["calls"] for way in ("fcall", "evalsha")),
        sum(c["calls"] for name, c in stats.items() if name != "cmdstat_info"),
        net["total_net_input_bytes"] + net["total_net_output_bytes"],
    )
