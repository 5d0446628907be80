"""Measures long graphs: ``python -P -m benchmarks.graphs``.

A graph of 1,000 steps in layers, a chain of 500, and a list of 2,000 items of which 20 run at once.
Steps are claimed, their references are read and filled in, and they are settled as a worker does
it, without bodies. Prints the CPU time and the commands of a step in the first and last fifth,
and what the session keeps in Redis.
"""

from __future__ import annotations

import resource
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from redis import Redis

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.engine import Engine
from app.settings import Settings
from app.store.store import Store, connect
from benchmarks.cost import Queue, read_counters
from benchmarks.meter import machine
from leadhand.graphs.documents import GraphDocument
from leadhand.local.redis_server import RedisServer


class Share(NamedTuple):
    """What a step took on average, in a part of the run."""

    #: CPU time of the process and the server: it depends little on what else the machine does.
    us: float
    commands: float


class Measured(NamedTuple):
    steps: int
    submit_s: float
    run_s: float
    first: Share
    last: Share
    #: Bytes that the session keeps in Redis.
    kept: int


def layers(depth: int, width: int) -> GraphDocument:
    """Layers of steps, each of which refers to two steps of the layer before."""
    steps: list[dict[str, Any]] = []
    for layer in range(depth):
        for number in range(width):
            before = [f"l{layer - 1}-{n % width}" for n in (number, number + 1)] if layer else []
            arguments = {f"a{n}": f"${{{name}.n}}" for n, name in enumerate(before)}
            steps.append({"name": f"l{layer}-{number}", "tool": "echo", "arguments": arguments})
    return GraphDocument.model_validate({"steps": steps})


def chain(length: int) -> GraphDocument:
    """Steps one after the other, each of which refers to the one before."""
    steps: list[dict[str, Any]] = [{"name": "s0", "tool": "echo"}]
    for number in range(1, length):
        arguments = {"before": f"${{s{number - 1}}}"}
        steps.append({"name": f"s{number}", "tool": "echo", "arguments": arguments})
    return GraphDocument.model_validate({"steps": steps})


def fan_out(width: int, at_once: int) -> GraphDocument:
    """A list of items with a limit, and a step that refers to all results."""
    each = {"name": "each", "tool": "echo", "for_each": "${inputs.list}", "at_once": at_once,
            "arguments": {"item": "${item}"}}  # fmt: skip
    last = {"name": "last", "tool": "echo", "arguments": {"all": "${each}"}}
    given = {"inputs": {"list": list(range(width))}, "steps": [each, last]}
    return GraphDocument.model_validate(given)


def measure(url: str, document: GraphDocument) -> Measured:
    """Run a graph to its end."""
    redis = Redis.from_url(url, decode_responses=True)
    redis.execute_command("FLUSHALL", "SYNC")
    before = redis.info("memory")["used_memory"]
    queue = Queue()
    engine = Engine(Store(connect(url)), queue, Settings(redis_url=url, secret="of the benchmark"))
    began = time.perf_counter()
    session = engine.submit.document(document).session
    submitted = time.perf_counter()
    marks = [_mark(redis)]
    while queue.hints:
        done = _carry_out(engine, SessionRef(session, session), queue)
        marks += [_mark(redis)] * done
    ended = time.perf_counter()
    assert engine.queries.session(session).status == "completed"
    kept = redis.info("memory")["used_memory"] - before
    # The last step may read all results; it is no part of the comparison.
    steps, fifth = len(marks) - 2, (len(marks) - 2) // 5
    return Measured(
        len(marks) - 1,
        submitted - began,
        ended - submitted,
        _share(marks, 1, 1 + fifth),
        _share(marks, steps - fifth, steps),
        kept,
    )


def _mark(redis: Redis) -> tuple[float, int]:
    """The CPU time of this process and the server so far, and the server's commands."""
    cpu = redis.info("cpu")
    server = cpu["used_cpu_user"] + cpu["used_cpu_sys"]
    return time.process_time() + server, read_counters(redis).commands


def _share(marks: list[tuple[float, int]], begin: int, end: int) -> Share:
    (began, before), (ended, after), steps = marks[begin], marks[end], end - begin
    return Share((ended - began) / steps * 1e6, (after - before) / steps)


def _carry_out(engine: Engine, ref: SessionRef, queue: Queue) -> int:
    """Carry out a hint and the granted next steps; returns the number of steps."""
    hint = queue.hints.popleft()
    answer = engine.attempts.claim(ref, hint.address, nonce=uuid.uuid4().hex, worker="graphs")
    todo, done = deque(answer.grants), 0
    while todo:
        work = engine.attempts.work(ref, todo.popleft())
        outcome = Outcome(word="succeeded", value={"n": 1})
        settled = engine.attempts.settle(work, outcome, take=[uuid.uuid4().hex], worker="graphs")
        engine.transitions.publish(ref, settled.hints)
        todo.extend(settled.grants)
        done += 1
    return done


CASES: Mapping[str, GraphDocument] = {
    "1,000 steps in 40 layers": layers(40, 25),
    "a chain of 500": chain(500),
    "2,000 items, 20 at once": fan_out(2_000, 20),
}


def main(url: str) -> None:
    """Print the table."""
    print(machine(url))
    print(f"{'':26}{'submit':>9}{'run':>8}{'CPU us per step':>20}{'ratio':>7}"
          f"{'commands per step':>20}{'kept':>12}")  # fmt: skip
    for name, document in CASES.items():
        found = measure(url, document)
        first, last = found.first, found.last
        print(
            f"{name:26}{found.submit_s:7.2f} s{found.run_s:6.1f} s{first.us:11.0f}{last.us:9.0f}"
            f"{last.us / first.us:7.2f}{first.commands:11.1f}{last.commands:9.1f}"
            f"{found.kept / 1024:9.0f} kB"
        )
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"the process that compiled and carried out all of them had {used:.0f} MB at most")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as own, RedisServer(Path(own) / ".leadhand") as server:
        main(server.url)
