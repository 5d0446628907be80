"""A doer, checker, break or agent of the chaos runs: it writes down what it did.

    python -I -S body.py ACCOUNT KIND SECONDS [ACCEPTS] [HABIT...]

KIND is `work`, `fail` (it ends badly), `slow` (its first attempt overruns its time), `check`, which
is content from the iteration on that ACCEPTS names for its run (`1:3,2:1`; `*` is any run), or
`yes` and `no`: a script that decides, and means it where its answer is that word. Habits: `deaf`
hears no SIGTERM, `turned` says the other word, `nest` leaves a child in a session of its own,
`write` leaves a line in the working folder.

    python -I -S body.py ACCOUNT talk THREADS [--resume THREAD]

is an agent with conversations: each turn makes a new thread of the one that it resumes. Its prompt
has its duration (`0.3 s`), whether it stumbles at first, and its decision.

    python -I -S body.py ACCOUNT task

is the doer of a plan's task. It reports its beginning and its end, with notes that no other report
has. Its prompt has its duration, whether it fails or gives up, and what it proposes. The API's
addresses are in the file `apis` beside the account.

    python -I -S body.py ACCOUNT merge

is the doer of a task that is merged, and its resolver.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

#: What an agent's turn costs, in millionths of a dollar: as much as it tells at first, and in all.
AT_FIRST, IN_ALL = 4_000, 10_000
TOLD_MOST = 1500


def main(argv: list[str]) -> int:
    account, kind, *rest = argv
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
    if kind == "talk":
        return talk(account, me, fence, rest)
    if kind == "task":
        return task(account, me)
    if kind == "merge":
        return merge(account, me)
    seconds, *habits = rest
    if "deaf" in habits:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write(account, me | {"event": "begin", "at": time.time()})
    if "nest" in habits and os.fork() == 0:
        os.setsid()
        time.sleep(300)
        os._exit(0)
    line = left_behind(me) if "write" in habits else ""
    time.sleep(60 if kind == "slow" and fence == 1 else float(seconds))
    said = f"{kind} of {me['key']} under fence {fence}"
    if kind in ("yes", "no"):
        answer = "yes" if accepted(habits[0]) != ("turned" in habits) else "no"
        good, code, said = answer == kind, 0, json.dumps({"answer": answer})
    else:
        good = accepted(habits[0]) if kind == "check" else kind != "fail"
        code = 0 if good else 1
    write(
        account, me | {"event": "end", "at": time.time(), "good": good, "said": said, "line": line}
    )
    sys.stdout.write(said + "\n")
    return code


def talk(account: str, me: dict[str, object], fence: int, rest: list[str]) -> int:
    """One turn of a conversation."""
    threads, told = rest[0], sys.stdin.read()
    resumed = rest[2] if "--resume" in rest else ""
    heard = recalled(threads, resumed) if resumed else []
    begun = {"resumed": resumed, "told": told[:TOLD_MOST], "micros": IN_ALL}
    write(account, me | {"event": "begin", "at": time.time()} | begun)
    tell({"cost": AT_FIRST / 1e6, "in": 1, "out": 0})
    line = left_behind(me)
    lasts = re.search(r"([0-9.]+) s\b", told)
    time.sleep(float(lasts.group(1)) if lasts else 0.1)
    if "stumbles" in told and fence == 1:
        write(account, me | {"event": "end", "at": time.time(), "good": False, "line": line})
        sys.stderr.write("it stumbled\n")
        return 1
    thread = hashlib.sha256(f"{me['key']} {fence} {me['pid']}".encode()).hexdigest()[:16]
    Path(threads, thread).write_text(json.dumps([*heard, str(me["key"])]))
    wanted = re.search(r"iteration (\d+) or later", told)
    good = wanted is None or accepted(f"*:{wanted.group(1)}")
    said = f"turn {len(heard) + 1} of {me['key']} under fence {fence}"
    if wanted is not None:
        said = json.dumps({"answer": "yes" if good else "no"})
    ended = {"good": good, "said": said, "line": line, "thread": thread, "heard": len(heard)}
    write(account, me | {"event": "end", "at": time.time()} | ended)
    tell({"cost": IN_ALL / 1e6, "in": 3, "out": 5, "answer": said, "thread": thread})
    return 0


def task(account: str, me: dict[str, object]) -> int:
    """One doer of a plan's task."""
    write(account, me | {"event": "begin", "at": time.time()})
    prompt = Path(os.environ["LEADHAND_PROMPT_FILE"]).read_text().partition("# The whole")[0]
    proposed = re.search(r"It proposes (\w+)", prompt)
    proposals: list[dict[str, object]] = []
    if proposed:
        one = {"id": proposed.group(1), "title": "One more", "checkers": ["soon"]}
        proposals.append({"task": one})
    report(account, me, "in_progress", "begins", proposals)
    lasts = re.search(r"([0-9.]+) s\b", prompt)
    time.sleep(float(lasts.group(1)) if lasts else 0.1)
    gives_up, fails = "It gives up." in prompt, "It fails." in prompt
    report(account, me, "blocked" if gives_up else "failed" if fails else "completed", "ends", [])
    said = f"task of {me['key']} under fence {me['fence']}"
    write(account, me | {"event": "end", "at": time.time(), "good": not fails, "said": said})
    if gives_up:
        call("exit", {"reason": "it gives up"})
    sys.stdout.write(said + "\n")
    return 1 if fails else 0


def merge(account: str, me: dict[str, object]) -> int:
    """A doer in a worktree; as the resolver of a conflict it keeps the lines of both sides."""
    write(account, me | {"event": "begin", "at": time.time()})
    prompt, shared = Path(os.environ["LEADHAND_PROMPT_FILE"]).read_text(), Path("shared.txt")
    if "# Merge the task" in prompt:
        lines = shared.read_text().splitlines()
        kept = [one for one in lines if one[:3] not in ("<<<", "===", ">>>")]
        shared.write_text("".join(f"{one}\n" for one in kept))
    else:
        found = re.search(r"# Task (\w+)", prompt)
        name = found.group(1) if found else "unknown"
        Path(f"{name}.txt").write_text("work\n")
        lasts = re.search(r"([0-9.]+) s\b", prompt)
        time.sleep(float(lasts.group(1)) if lasts else 0.1)
        lines = shared.read_text().splitlines()
        if "Change the shared file." in prompt and name not in lines:
            shared.write_text("".join(f"{one}\n" for one in (*lines, name)))
    said = f"merge of {me['key']} under fence {me['fence']}"
    write(account, me | {"event": "end", "at": time.time(), "good": True, "said": said})
    sys.stdout.write(said + "\n")
    return 0


def report(
    account: str, me: dict[str, object], status: str, what: str, proposals: list[dict[str, object]]
) -> None:
    """Report once, however often it has to be asked; the account has the answer."""
    notes = f"{what} {me['key']} under fence {me['fence']}"
    asked = me | {"event": "report", "notes": notes, "status": status}
    write(account, asked)
    code, answer = call("reports", {"status": status, "notes": notes, "proposals": proposals})
    said = answer if isinstance(answer, dict) and code == 200 else {}
    write(account, asked | {"code": code} | {n: said[n] for n in ("version", "repeated") if said})


def call(route: str, body: dict[str, object]) -> tuple[int, object]:
    """POST to the own session, at whichever API answers, until one says yes or no."""
    apis = Path(sys.argv[1]).with_name("apis").read_text().split()
    headers = {
        "Authorization": f"Bearer {os.environ['LEADHAND_TOKEN']}",
        "Content-Type": "application/json",
    }
    path, text = f"/v1/sessions/{os.environ['LEADHAND_SESSION']}/{route}", json.dumps(body)
    while True:
        apis.append(apis.pop(0))
        connection = http.client.HTTPConnection(apis[0], timeout=5)
        try:
            connection.request("POST", path, text, headers)
            answer = connection.getresponse()
            found = answer.read()
            if answer.status < 500 and answer.status != 429:
                return answer.status, json.loads(found)
        except (OSError, http.client.HTTPException, ValueError):
            pass  # this API is away
        finally:
            connection.close()
        time.sleep(0.2)


def recalled(threads: str, thread: str) -> list[str]:
    """What was said until there; an agent that has lost it cannot go on."""
    return list(json.loads(Path(threads, thread).read_text()))


def tell(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def left_behind(me: dict[str, object]) -> str:
    """A line in the working folder that nobody else writes."""
    line = f"{me['key']} under fence {me['fence']} by {me['pid']}"
    append("work.txt", line)
    return line


def accepted(wanted: str) -> bool:
    """Whether a check is content with this iteration of this run."""
    runs = dict(pair.split(":") for pair in wanted.split(","))
    found = re.findall(r"~(\d+)\[(\d+)\]", os.environ["LEADHAND_STEP"])
    run, iteration = found[-1] if found else ("1", "1")
    return int(iteration) >= int(runs.get(run, runs.get("*", "999")))


def write(account: str, line: dict[str, object]) -> None:
    append(account, json.dumps(line))


def append(file: str, line: str) -> None:
    """One write of less than a page to a file that is only appended to: lines stay whole."""
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, (line + "\n").encode())
    os.close(fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
