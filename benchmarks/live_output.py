"""Measures what live output costs the body that writes it: ``python -P -m benchmarks.live_output``.

Runs a body that writes 10,000 lines a second, in turn with and without publishing, and prints the
CPU time of the body and of this process (the worker's part), medians of the pairs, and what Redis
keeps of it. Only CPU time counts (`getrusage`): other load on the machine delays a run, but costs
neither side CPU time.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

from app.core.addresses import SessionRef
from app.core.program import Action, Loop, Program, Step
from app.sessions.outputs import RING_BYTES, Outputs, list_outputs
from app.sessions.submit import About
from app.settings import Settings
from app.store.store import Store, connect
from leadhand.local.redis_server import RedisServer
from tasks.bootstrap import make_engine
from workers.attempt.output_writer import OutputWriter
from workers.live_output import LiveOutput
from workers.processes.process import Command, run

PAIRS = 7
#: The body may need so many times the CPU time that it needs without publishing.
AIM = 1.05
SECONDS = 3
LINES_PER_S = 10_000
BODY = f"""
import sys, time
begun = time.monotonic()
for tick in range({SECONDS * 100}):
    for number in range({LINES_PER_S // 100}):
        sys.stdout.write("a line of output that is about as long as lines of a build are\\n")
    sys.stdout.flush()
    time.sleep(max(0, begun + (tick + 1) / 100 - time.monotonic()))
"""
LOOP = Program(body=(Loop(id="loop", body=(Step(id="do", action=Action.AGENT),
                                           Step(id="judge", action=Action.JUDGE)),
                          max_iterations=1, result="do"),))  # fmt: skip
ADDRESS = "loop~1[1]/do"


class Cost(NamedTuple):
    """CPU seconds of one run."""

    body_s: float
    worker_s: float


def main() -> None:
    with tempfile.TemporaryDirectory() as name, RedisServer(Path(name, ".leadhand")) as server:
        folder = Path(name)
        settings = Settings.from_env({
            "LEADHAND_REDIS_URL": server.url, "LEADHAND_SECRET": "of the benchmark",
        })  # fmt: skip
        engine, _celery = make_engine(settings)
        about = About(kind="loop", name="live output", cwd=str(folder))
        session = engine.submit.program(LOOP, about).session
        ref = SessionRef(session, session)
        claimed = engine.attempts.claim(ref, ADDRESS, nonce="n", worker="bench")
        writer = OutputWriter(Outputs(Store(connect(server.url, tries=0))).append)
        pairs = [
            (_cost(folder, None), _cost(folder, writer.open(ref, claimed.grants[0])))
            for _ in range(PAIRS)
        ]
        print(f"{LINES_PER_S} lines a second for {SECONDS} s, {PAIRS} interleaved pairs, medians")
        for title, part in (("body", 0), ("worker", 1)):
            silent = statistics.median(pair[0][part] for pair in pairs)
            shown = statistics.median(pair[1][part] for pair in pairs)
            ratio = statistics.median(pair[1][part] / pair[0][part] for pair in pairs)
            print(f"{title}: {silent:.3f} s of CPU without, {shown:.3f} s with; ratio {ratio:.3f}")
            if title == "body":
                print(f"aim for the body: a ratio of at most {AIM}: {_met(ratio)}")
        (view,) = list_outputs(engine, session, step=ADDRESS, limit=1)
        kept = sum(len(part.text) for part in view.parts)
        print(f"Redis keeps {kept} bytes of it; at most {RING_BYTES}")


def _met(ratio: float) -> str:
    return "reached" if ratio <= AIM else "missed"


def _cost(folder: Path, output: LiveOutput | None) -> Cost:
    before = _cpu_s()
    run(
        Command(
            line=(sys.executable, "-S", "-c", BODY),
            cwd=folder,
            env={"PATH": os.environ["PATH"]},
            spill=folder / "spill",
            timeout_s=60,
            on_read=output.write if output is not None else None,
        ),
        threading.Event(),
    )
    if output is not None:
        output.end()
    after = _cpu_s()
    return Cost(after.body_s - before.body_s, after.worker_s - before.worker_s)


def _cpu_s() -> Cost:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    return Cost(children.ru_utime + children.ru_stime, own.ru_utime + own.ru_stime)


if __name__ == "__main__":
    main()
