"""A plan of eight tasks at real workers: each child session comes to another end.

One fails, one exits with a reason, the worker of one is killed with kill -9, one proposes a task,
and one is resumed after the plan went on. tests/engine/plans/test_plan_orders.py has the orders.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import psutil
import pytest

from tests.acceptance.project import Project, outcomes
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]

NEEDS = {
    "works": (), "proposes": (), "killed": ("works",), "fails": ("works", "proposes"),
    "resumed": ("proposes",), "follows": ("killed",), "blocked": ("fails", "resumed"), "exits": (),
}  # fmt: skip
WHY = "no key for the registry"
#: Does what the id of its task says. `shared` is the folder of the plan; tasks work in copies.
DOER = """
import os, pathlib, re, subprocess, sys, time
shared = pathlib.Path(sys.argv[1])
task = re.search(r"# Task (\\w+)", sys.stdin.read())[1]


def leadhand(*words):
    subprocess.run(["leadhand", *words], check=True)


with open(shared / "starts", "a") as starts:
    print(task, os.getpid(), file=starts, flush=True)
leadhand("report", "in_progress", "--notes", f"{task} begins")
if task == "proposes":
    (shared / "more.json").write_text('[{"id": "more", "title": "One more"}]')
    leadhand("report", "in_progress", "--propose", str(shared / "more.json"), "--why", "a gap")
elif task == "exits":
    leadhand("report", "blocked", "--notes", "exits needs a key")
    leadhand("exit", sys.argv[2])
    time.sleep(600)
elif task == "fails" or (task == "resumed" and not (shared / "fixed").exists()):
    sys.exit(f"{task} found no way")
while task == "killed" and not (shared / "killed").exists():
    time.sleep(0.02)
leadhand("report", "completed", "--notes", f"{task} is done")
"""


def start(project: Project) -> str:
    doer = project.write("doer.py", DOER)
    tasks = [{"id": one, "title": one, "dependencies": needs} for one, needs in NEEDS.items()]
    path = project.write("tasks.json", json.dumps(tasks))
    started = project.leadhand(
        "plan", "new", "Eight ends", "--tasks", str(path), "--no-refine", "--detach",
        "--retries", "0", "--at-once", "3", "--unchecked",
        "--doer", f"'{sys.executable}' -P '{doer}' '{project.folder}' '{WHY}'",
    )  # fmt: skip
    assert started.code == 0, started
    return started.out.strip()


def kill_worker_of(pid: int) -> None:
    """Kill the worker process that carries out the attempt of a doer."""
    above = psutil.Process(pid).parents()
    next(one for one in above if one.cmdline()[-2:] == ["leadhand.serve", "worker"]).kill()


def test_a_plan_shows_the_end_of_each_of_its_eight_tasks(alone: Project) -> None:
    project = alone
    with project.up() as client:
        session = start(project)

        def tasks() -> dict[str, Any]:
            found = client.get(f"/v1/sessions/{session}/plan").json()["tasks"]
            return {one["id"]: one for one in found}

        def started(task: str) -> list[int]:
            lines = [line.split() for line in project.lines("starts")]
            return [int(pid) for name, pid in lines if name == task]

        wait_until(lambda: started("killed"), timeout=90)
        kill_worker_of(started("killed")[0])
        wait_until(lambda: len(started("killed")) == 2, timeout=90)
        project.write("killed", "")
        wait_until(lambda: tasks()["resumed"]["status"] == "failed", timeout=90)
        wait_until(lambda: tasks()["follows"]["verified"], timeout=90)
        project.write("fixed", "")
        child = tasks()["resumed"]["session"]
        resumed = project.leadhand("resume", child, timeout=60)
        assert resumed.code == 0, resumed
        wait_until(lambda: tasks()["resumed"]["verified"], timeout=90)
        # The open proposal has kept the plan from ending.
        accepted = project.leadhand("plan", "accept", session, "p1", timeout=60)
        assert accepted.code == 0, accepted
        assert project.leadhand("wait", session, timeout=120).code == 3
        check(client.get(f"/v1/sessions/{session}").json(), tasks())
        check_inbox(client.get(f"/v1/sessions/{session}/inbox?limit=200").json()["items"])
        killed = tasks()["killed"]["session"]
        assert outcomes(client, killed)["loop~1[1]/do"] == 1
    assert len(started("killed")) == 2
    assert {name: len(started(name)) for name in NEEDS if name not in ("killed", "resumed")} == {
        "works": 1, "proposes": 1, "fails": 1, "follows": 1, "blocked": 0, "exits": 1,
    }  # fmt: skip
    assert "blocked" in project.leadhand("explain", session, timeout=60).out


def check(session: dict[str, Any], tasks: dict[str, Any]) -> None:
    found = {id_: (one["status"], one["verified"], one["run"]) for id_, one in tasks.items()}
    done = ("completed", True, 1)
    assert found == {
        "works": done, "proposes": done, "killed": done, "follows": done, "resumed": done,
        "more": done, "fails": ("failed", False, 1), "exits": ("blocked", False, 1),
        "blocked": ("blocked", False, 0),
    }  # fmt: skip
    assert tasks["exits"]["reason"]["code"] == "exit"
    assert WHY in json.dumps(tasks["exits"]["reason"])
    assert "fails found no way" in json.dumps(tasks["fails"]["reason"])
    assert (session["status"], session["reason"]["code"]) == ("failed", "blocked_on")
    assert session["reason"]["text"].endswith(": blocked")


def check_inbox(messages: list[dict[str, Any]]) -> None:
    """Each fact and each report is in the inbox of the plan once, what needs attention marked."""
    seen = [(one["kind"], one["text"].partition(": ")[0].removeprefix("task ")) for one in messages]
    accepted = [task for kind, task in seen if kind == "accepted"]
    assert sorted(accepted) == sorted(("works", "proposes", "killed", "follows", "resumed", "more"))
    assert sorted(task for kind, task in seen if kind == "failed") == ["exits", "fails", "resumed"]
    assert [task for kind, task in seen if kind == "proposal"] == ["proposes"]
    assert all(one["escalates"] for one in messages if one["kind"] in ("failed", "proposal"))
    exits = [one["text"] for one in messages if one["kind"] == "failed" and WHY in one["text"]]
    assert len(exits) == 1
