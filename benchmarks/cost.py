"""Measures Redis commands and bytes per step at the start and the end of long sessions.

Run it against any Redis that may be emptied: ``python -P -m benchmarks.cost redis://...``; without
an address it starts the packaged server. Steps are claimed, read and settled as a worker does it,
without bodies, so that only the engine is measured.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from redis import Redis

from app.compiler import compile_document
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Program, Step
from app.core.records import Hint, QueueDepth
from app.engine import Engine
from app.sessions.submit import About
from app.settings import Settings
from app.store.store import Store, connect
from leadhand.local.redis_server import RedisServer
from leadhand.models.documents import LoopDocument, WorkflowDocument


class Queue:
    """An in-memory replacement of Celery: a queue of hints."""

    def __init__(self) -> None:
        self.hints: deque[Hint] = deque()

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:  # noqa: ARG002
        self.hints.extend(hints)

    def publish_all(self, batch: Sequence[tuple[SessionRef, Program, Sequence[Hint]]]) -> None:
        for ref, program, hints in batch:
            self.publish(ref, program, hints)

    def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        return dict.fromkeys(queues, len(self.hints))

    def strays(self, *_: object, **__: object) -> list[QueueDepth]:
        return []


class Spent(NamedTuple):
    """The server's counters."""

    commands: int
    bytes: int


class Cost(NamedTuple):
    """Cost per step, over some steps at the start and the end of a session."""

    steps: int
    first: Spent
    last: Spent
    memory: int

    @property
    def memory_per_step(self) -> float:
        return self.memory / self.steps


def read_counters(redis: Redis) -> Spent:
    """Read the server's counters: commands (those in scripts included) and bytes."""
    stats = redis.info("commandstats")
    calls = sum(s["calls"] for name, s in stats.items() if name != "cmdstat_info")
    traffic = redis.info("stats")
    return Spent(calls, traffic["total_net_input_bytes"] + traffic["total_net_output_bytes"])


def measure(url: str, program: Program, *, sample: int) -> Cost:
    """Run the program to its end, and measure `sample` steps at its start and end."""
    redis = Redis.from_url(url, decode_responses=True)
    redis.execute_command("FLUSHALL", "SYNC")  # what is freed later would be counted as ours
    before_memory = redis.info("memory")["used_memory"]
    queue = Queue()
    engine = Engine(Store(connect(url)), queue, Settings(redis_url=url, secret="of the benchmark"))
    session = engine.submit.program(program, About(kind="loop", name="cost")).session
    ref = SessionRef(session, session)
    marks = {0: read_counters(redis)}
    steps = 0
    while queue.hints:
        steps += carry_out(engine, ref, queue)
        marks[steps] = read_counters(redis)
    memory = redis.info("memory")["used_memory"] - before_memory
    ends = sorted(marks)
    early = next(n for n in ends if n >= sample)
    late = next(n for n in reversed(ends) if n <= steps - sample)
    return Cost(
        steps,
        _per_step(marks[ends[1]], marks[early], early - ends[1]),
        _per_step(marks[late], marks[steps], steps - late),
        memory,
    )


def memory_per_session(url: str, program: Program, *, sessions: int) -> int:
    """Bytes of Redis that a finished session keeps, its program shared by all of them."""
    redis = Redis.from_url(url, decode_responses=True)
    redis.execute_command("FLUSHALL", "SYNC")  # what is freed later would be counted as ours
    queue = Queue()
    engine = Engine(Store(connect(url)), queue, Settings(redis_url=url, secret="of the benchmark"))
    used = []
    for _ in range(sessions + 1):
        session = engine.submit.program(program, About(kind="workflow", name="cost")).session
        while queue.hints:
            carry_out(engine, SessionRef(session, session), queue)
        used.append(redis.info("memory")["used_memory"])
    return round((used[-1] - used[0]) / sessions)


def _per_step(begin: Spent, end: Spent, steps: int) -> Spent:
    return Spent(
        round((end.commands - begin.commands) / steps), round((end.bytes - begin.bytes) / steps)
    )


def carry_out(engine: Engine, ref: SessionRef, queue: Queue) -> int:
    """Carry out a hint and the granted next steps; returns the number of steps."""
    hint = queue.hints.popleft()
    answer = engine.attempts.claim(ref, hint.address, nonce=uuid.uuid4().hex, worker="cost")
    todo, done = deque(answer.grants), 0
    while todo:
        work = engine.attempts.work(ref, todo.popleft())
        outcome = _outcome(work.step, work.grant.address)
        settled = engine.attempts.settle(work, outcome, take=[uuid.uuid4().hex], worker="cost")
        engine.transitions.publish(ref, settled.hints)
        todo.extend(settled.grants)
        done += 1
    return done


def _outcome(step: Step, address: str) -> Outcome:
    match step.action:
        case Action.CHECK:
            return Outcome(word="succeeded", verdict="accept", text="fine")
        case Action.JUDGE:
            refuse = "loop~1[" in address and "[200]" not in address
            return Outcome(word="succeeded", verdict="retry" if refuse else "accept", text="so so")
        case Action.TOOL if step.id == "list":
            return Outcome(word="succeeded", value={"items": list(range(1000))})
        case _:
            return Outcome(word="succeeded", text="done")


def phases(count: int) -> Program:
    """A workflow of so many phases, each accepted at once."""
    loops = [
        {"name": f"p{n}", "task": "t", "checkers": ["true", "true"]} for n in range(1, count + 1)
    ]
    return compile_document(WorkflowDocument.model_validate({"name": "cost", "phases": loops}))


def iterations(count: int) -> Program:
    """A loop that is refused until its last iteration."""
    fields = {"task": "t", "checkers": ["true", "true"], "max_iterations": count, "no_progress": 0}
    return compile_document(LoopDocument.model_validate(fields))


def fan_out() -> Program:
    """A list, a thousand items of a tool, and what joins them."""
    return Program(
        body=(
            Step(id="list", action=Action.TOOL),
            Step(id="each", action=Action.TOOL, for_each="${list.items}"),
            Step(id="after", action=Action.TOOL),
        )
    )


CASES: Mapping[str, Program] = {
    "200 phases": phases(200),
    "200 iterations": iterations(200),
    "1000 items": fan_out(),
}


def main(url: str) -> None:
    """Print the table."""
    print(f"{'':16}{'steps':>7}{'commands per step':>22}{'bytes per step':>20}{'memory':>14}")
    print(f"{'':23}{'first':>11}{'last':>11}{'first':>10}{'last':>10}{'per step':>14}")
    for name, program in CASES.items():
        cost = measure(url, program, sample=40)
        first, last = cost.first, cost.last
        print(
            f"{name:16}{cost.steps:7}{first.commands:11}{last.commands:11}"
            f"{first.bytes:10}{last.bytes:10}{cost.memory_per_step:12.0f} B"
        )
    kept = memory_per_session(url, phases(3), sessions=100)
    print(f"a finished session of 3 phases (12 steps, without long outputs) keeps {kept} B")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with (
            tempfile.TemporaryDirectory() as folder,
            RedisServer(Path(folder) / ".leadhand") as server,
        ):
            main(server.url)
