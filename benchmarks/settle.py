"""Measures the server time of a settle: ``python -P -m benchmarks.settle [--beside CHECKOUT]``.

A session of quick steps in a row: each settle grants the next step. As a function (FCALL) and as
a script (EVALSHA). With another checkout both are measured in turn, on one server, and the
medians are compared. A busy machine changes its pace within seconds. So the time is also given
relative to that of the commands within the settles, which are the same on both sides.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from redis import Redis

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Program
from app.core.records import Hint, QueueDepth
from app.engine import Engine
from app.sessions.submit import About
from app.settings import Settings
from app.store.store import Store, connect
from benchmarks.programs import sequence
from leadhand.local.redis_server import RedisServer

STEPS = 100
#: The user of the server that may load no functions.
SCRIPTS_ONLY = "scripts"
COMMANDS = ("fcall", "evalsha")


class NoWorkers:
    """Publishes no hints: the benchmark settles its steps itself."""

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:
        pass

    def publish_all(self, batch: Sequence[tuple[SessionRef, Program, Sequence[Hint]]]) -> None:
        for ref, program, hints in batch:
            self.publish(ref, program, hints)

    def depths(self, queues: Sequence[str]) -> Mapping[str, int]:  # noqa: ARG002 - a port
        return {}

    def strays(
        self,
        gone: Callable[[str, Sequence[str]], set[str]],  # noqa: ARG002 - a port
        *,
        drop: bool,  # noqa: ARG002 - a port
    ) -> Sequence[QueueDepth]:
        return []


class Settle(NamedTuple):
    """The server's time for a settle."""

    #: The median of all calls.
    median_us: float
    #: All calls together, by the time of the commands within them.
    relative: float


def measure(url: str, command: str, sessions: int) -> Settle:
    """Measure the settles of this checkout."""
    client = connect(url)
    if command == "evalsha":
        client.connection_pool.connection_kwargs |= {"username": SCRIPTS_ONLY, "password": "x"}
    engine = Engine(Store(client), NoWorkers(), Settings(redis_url=url, place="here", secret="x"))
    settle_all(engine)  # loads the library, and fills the caches
    server = Redis.from_url(url, decode_responses=True)
    server.config_resetstat()
    for _ in range(sessions):
        settle_all(engine)
    median = float(server.info("latencystats")[f"latency_percentiles_usec_{command}"]["p50"])
    times = {name: stat["usec"] for name, stat in server.info("commandstats").items()}
    outer = times.pop(f"cmdstat_{command}")
    for name in ("cmdstat_info", "cmdstat_config|resetstat"):
        times.pop(name, None)
    return Settle(median, outer / sum(times.values()))


def settle_all(engine: Engine) -> None:
    """Run a session. Of its calls all are settles, but the first two."""
    about = About(kind="loop", name="settle", place="here")
    id_ = engine.submit.program(sequence(STEPS, quick=True), about).session
    ref = SessionRef(id_, id_)
    grants = engine.attempts.claim(ref, "s1", nonce=uuid.uuid4().hex, worker="w").grants
    while grants:
        work = engine.attempts.work(ref, grants[0])
        outcome = Outcome(word="succeeded", text="done")
        answer = engine.attempts.settle(work, outcome, take=[uuid.uuid4().hex], worker="w")
        grants = answer.grants


def main(arguments: Sequence[str]) -> None:
    """Measure this checkout, and another one if it is given."""
    parser = argparse.ArgumentParser(prog="benchmarks.settle", description=__doc__)
    parser.add_argument("--beside", type=Path, help="another checkout, to compare with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sessions", type=int, default=10, help="of 100 steps, in each round")
    parser.add_argument("--measure", nargs=2, metavar=("URL", "COMMAND"), help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.measure:
        print(*measure(*asked.measure, asked.sessions))
        return
    here = Path(__file__).parents[1]
    sides = {"before": asked.beside.resolve(), "now": here} if asked.beside else {"now": here}
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder, ".leadhand")) as server:
        compare(server.url, sides, asked.rounds, asked.sessions)


def compare(url: str, sides: Mapping[str, Path], rounds: int, sessions: int) -> None:
    """Measure the checkouts in turn, and print the medians."""
    admin = Redis.from_url(url, decode_responses=True)
    admin.acl_setuser(
        SCRIPTS_ONLY, enabled=True, passwords=["+x"], keys=["*"], channels=["*"],
        commands=["+@all", "-fcall", "-function"],
    )  # fmt: skip
    for command in COMMANDS:
        found: dict[str, list[Settle]] = defaultdict(list)
        for _ in range(rounds):
            for side, checkout in sides.items():
                admin.flushall()
                found[side].append(_measured(checkout, url, command, sessions))
        for field, name in enumerate(("median, us", "by its commands")):
            medians = {s: statistics.median(one[field] for one in found[s]) for s in sides}
            texts = [f"{side} {median:.2f}" for side, median in medians.items()]
            if "before" in medians:
                texts.append(f"{(medians['now'] / medians['before'] - 1) * 100:+.1f} %")
            print(f"{command:8} {name:16}", ", ".join(texts), flush=True)


def _measured(checkout: Path, url: str, command: str, sessions: int) -> Settle:
    """Measure in a process of its own, with the packages of a checkout."""
    program = [sys.executable, "-P", __file__, "--sessions", str(sessions)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    process = subprocess.run(
        [*program, "--measure", url, command], env=environment, check=True, text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    return Settle(*map(float, process.stdout.split()))


if __name__ == "__main__":
    main(sys.argv[1:])
