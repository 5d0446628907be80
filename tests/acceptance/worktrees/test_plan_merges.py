"""Tasks of a plan merged in a real repository: two conflict in text, and two only in meaning."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import MakeProject
from tests.acceptance.project import BIN, Project
from tests.unit.workers.folders.repositories import git, make_repository, user_state
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

TASKS = [{"id": name, "title": name} for name in ("left", "right", "more", "less")]
#: `left` and `right` change the same line; `more` and `less` each add a file, and two are too many.
#: As a resolver it joins both sides of a conflict, and otherwise does what a person advises.
DOER = """
import pathlib, re, sys
prompt = sys.stdin.read()
shared = pathlib.Path("shared.txt")
if "# Merge the task" not in prompt:
    name = re.search("# Task (\\\\w+)", prompt)[1]
    if name in ("left", "right"):
        shared.write_text(name + "\\n")
    else:
        pathlib.Path(name + ".num").write_text("1")
elif "conflicts in shared.txt" in prompt:
    lines = shared.read_text().splitlines()
    lines = [one for one in lines if one[:3] not in ("<<<", "===", ">>>")]
    shared.write_text("\\n".join(lines) + "\\n")
elif "remove both" in prompt:
    for one in pathlib.Path().glob("*.num"):
        one.unlink()
    pathlib.Path("sum.num").write_text("2")
"""


def start(project: Project, repo: Path, tmp_path: Path) -> str:
    """Start the plan; its session."""
    (tmp_path / "doer.py").write_text(DOER)
    (tmp_path / "tasks.json").write_text(json.dumps(TASKS))
    started = project.leadhand(
        "plan", "new", "Write", "--tasks", str(tmp_path / "tasks.json"), "--no-refine", "--detach",
        "--cwd", str(repo), "--retries", "0", "--at-once", "4",
        "--doer", f"python3 '{tmp_path / 'doer.py'}'",
        "--checker", "few: test $(ls *.num 2>/dev/null | wc -l) -le 1",
    )  # fmt: skip
    assert started.code == 0, started
    return started.out.strip()


def plan_of(project: Project, session: str) -> dict[str, Any]:
    found: dict[str, Any] = project.leadhand("plan", "show", session, "--json").json()
    return found


def test_each_accepted_task_lands_once(project: Project, tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo")
    (repo / "shared.txt").write_text("nothing\n")
    git(repo, "add", "shared.txt")
    git(repo, "commit", "-qm", "second", "shared.txt")
    before, head = user_state(repo), git(repo, "rev-parse", "HEAD")
    session = start(project, repo, tmp_path)

    def question() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = project.leadhand("questions", "--json").json()["items"]
        return [one for one in found if "could not be merged" in str(one["question"])]

    wait_until(question, timeout=200)
    (asked,) = question()
    assert "not accepted by the checkers" in asked["question"]
    answered = project.leadhand(
        "answer", asked["session"], "--choice", "again", "--field", "advice=remove both"
    )
    assert answered.code == 0, answered
    ended = project.leadhand("wait", session, timeout=100)
    assert ended.code == 0, ended
    branch = f"leadhand/plan-{session}"
    assert sorted(git(repo, "show", f"{branch}:shared.txt").splitlines()) == ["left", "right"]
    assert git(repo, "ls-tree", "--name-only", branch, "--", "sum.num") == "sum.num"
    subjects = git(repo, "log", "--format=%s", f"{head}..{branch}").splitlines()
    resolved = [one for one in subjects if one.startswith("Resolve the merge of task ")]
    assert sorted(set(subjects) - set(resolved)) == [
        f"{name}: {name}" for name in ("left", "less", "more", "right")
    ]
    assert len(subjects) == 4 + len(resolved)
    for task in plan_of(project, session)["tasks"]:
        assert task["verified"], task
        assert git(repo, "merge-base", task["merge"]["commit"], branch) == task["merge"]["commit"]
    git(repo, "fsck", "--strict")
    assert user_state(repo) == before
    apply(project, repo, session)


def apply(project: Project, repo: Path, session: str) -> None:
    """The work comes home, the user's changes stay as they are, and again changes nothing."""
    changes = git(repo, "status", "--porcelain", "--untracked-files=no")
    applied = project.leadhand("plan", "apply", session)
    assert applied.code == 0, applied
    assert "your uncommitted changes were not checked with it" in applied.out
    assert git(repo, "rev-parse", "main") == git(repo, "rev-parse", f"leadhand/plan-{session}")
    assert git(repo, "status", "--porcelain", "--untracked-files=no") == changes != ""
    assert project.leadhand("plan", "apply", session).code == 0
    shown = project.leadhand("show", session, "--diff", "--task", "left").out
    assert ("+left" in shown, "right" in shown) == (True, False), shown
    assert "no changes" in project.leadhand("show", session, "--diff", "--unmerged").out
    cleaned = project.leadhand("worktree", "clean", session)
    assert cleaned.code == 0, cleaned
    assert len(git(repo, "worktree", "list").splitlines()) == 1


#: A `git` that kills a service, once at each point: before and after a worktree is made, in the
#: middle of a rebase, when the checks have passed, and when the branch has moved but nothing says
#: so yet. The service is the process that runs the step, the whole worker with its sweeper, or the
#: API.
GIT = """
import os, pathlib, signal, subprocess, sys
import psutil
here, real, words = pathlib.Path(sys.argv[0]).parent, {real!r}, sys.argv[1:]


def words_of(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def kill():
    pool = psutil.Process(os.getppid())
    worker = pool.parent()
    services = worker.parent().parent().children(recursive=True)
    apis = [one for one in services if words_of(one)[-3:] == ["-m", "leadhand.serve", "api"]]
    for one in dict(pool=[pool], worker=[worker, pool], api=apis)[{who!r}]:
        try:
            one.kill()
        except psutil.Error:  # it has ended
            pass
    (here / "killed").open("a").write(str(words[-3:]))


def once(name):
    try:
        (here / name).unlink()
    except FileNotFoundError:
        return False
    kill()
    return True


if "worktree" in words and "add" in words and (here / "made").exists():
    once("create")
    done = subprocess.run([real, *words])
    once("made")
    sys.exit(done.returncode)
if "rebase" in words and "--onto" in words:
    once("rebase")
if "update-ref" in words and "leadhand: merge task" in " ".join(words):
    if once("before"):
        sys.exit(1)
    done = subprocess.run([real, *words])
    once("after")
    sys.exit(done.returncode)
os.execv(real, [real, *words])
"""


@pytest.mark.parametrize("who", ["pool", "worker", "api"])
def test_killed_service_lands_each_commit_once(
    make_project: MakeProject, tmp_path: Path, who: str
) -> None:
    repo = make_repository(tmp_path / "repo")
    before, head = user_state(repo), git(repo, "rev-parse", "HEAD")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "git").write_text(
        f"#!{sys.executable}\n" + GIT.format(real=shutil.which("git"), who=who)
    )
    (tools / "git").chmod(0o755)
    points = ("create", "made", "rebase", "before", "after")
    for name in points:
        (tools / name).touch()
    project = make_project(PATH=f"{tools}{os.pathsep}{BIN}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "tasks.json").write_text(
        json.dumps([{"id": name, "title": name} for name in ("first", "second")])
    )
    ended = project.leadhand(
        "plan", "new", "Write", "--tasks", str(tmp_path / "tasks.json"), "--no-refine", "--json",
        "--cwd", str(repo), "--retries", "0", "--checker", "true",
        "--doer", 'touch "$(basename "$PWD").txt"', timeout=300,
    )  # fmt: skip
    assert ended.code == 0, (ended.out, ended.err)
    assert not [name for name in points if (tools / name).exists()]  # each was killed once
    session = ended.json()["session_id"]
    assert all(one["verified"] for one in plan_of(project, session)["tasks"]), ended
    branch = f"leadhand/plan-{session}"
    subjects = git(repo, "log", "--format=%s", f"{head}..{branch}").splitlines()
    assert sorted(subjects) == ["first: first", "second: second"]
    git(repo, "fsck", "--strict")
    assert user_state(repo) == before
    audited = project.leadhand("fsck", timeout=90)
    assert audited.code == 0, audited
