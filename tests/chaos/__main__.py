"""`python -P -m tests.chaos` breaks a fleet for some minutes; exit code 1: a promise broke too."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.run import Plan, run, told_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="what is drawn from it is the same")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long things break")
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two faults")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--lease", type=float, default=5.0, help="seconds")
    given = parser.parse_args()
    seed = random.randrange(10_000) if given.seed is None else given.seed
    plan = Plan(seed, given.minutes, given.sessions, given.every, given.workers, given.lease)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    folder = Path(tempfile.mkdtemp(prefix="leadhand-chaos-"))
    say(f"{plan.command}\n{len(plan.faults)} faults are planned:")
    for fault in plan.faults:
        say(f"  {fault.at_s:6.1f} s  {fault.kind} ({fault.pick}, {fault.lasts_s} s)")
    began = time.monotonic()
    found = run(plan, folder, say)
    for line in told_of(plan, found):
        say(line)
    say(f"took {time.monotonic() - began:.0f} s")
    if found.broken:
        say(f"logs and account: {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
