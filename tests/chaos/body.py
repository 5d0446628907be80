"""A doer, checker or break of the chaos runs: it writes down what it did, in an account of its own.

    python -I -S body.py ACCOUNT KIND SECONDS [ACCEPTS] [HABIT...]

KIND is `work`, `fail` (it ends badly), `slow` (its first attempt overruns its time) or `check`,
which is content from the iteration on that ACCEPTS names for its run (`1:3,2:1`). Habits: `deaf`
hears no SIGTERM, `nest` leaves a child in a session of its own behind.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import sys
import time


def main(argv: list[str]) -> int:
    account, kind, seconds, *rest = argv
    if "deaf" in rest:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    token = os.environ["LEADHAND_TOKEN"].split(".")[1]
    fence = int(json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))[2])
    me = {
        "session": os.environ["LEADHAND_SESSION"],
        "address": os.environ["LEADHAND_STEP"],
        "key": os.environ["LEADHAND_KEY"],
        "fence": fence,
        "pid": os.getpid(),
        "kind": kind,
    }
    write(account, me | {"event": "begin", "at": time.time()})
    if "nest" in rest and os.fork() == 0:
        os.setsid()
        time.sleep(300)
        os._exit(0)
    time.sleep(60 if kind == "slow" and fence == 1 else float(seconds))
    good = accepted(rest[0]) if kind == "check" else kind != "fail"
    write(account, me | {"event": "end", "at": time.time(), "good": good})
    sys.stdout.write(f"{kind} of {me['key']} under fence {fence}\n")
    return 0 if good else 1


def accepted(wanted: str) -> bool:
    """Whether a check is content with this iteration of this run."""
    runs = dict(pair.split(":") for pair in wanted.split(","))
    found = re.findall(r"~(\d+)\[(\d+)\]", os.environ["LEADHAND_STEP"])
    run, iteration = found[-1] if found else ("1", "1")
    return int(iteration) >= int(runs.get(run, "999"))


def write(account: str, line: dict[str, object]) -> None:
    """One write of less than a page to a file that is only appended to: lines stay whole."""
    fd = os.open(account, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, (json.dumps(line) + "\n").encode())
    os.close(fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
