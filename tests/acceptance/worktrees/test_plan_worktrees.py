"""Tasks of a plan side by side, each in a folder of its own, with real workers and real git."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.project import Project
from tests.unit.workers.folders.repositories import git, make_repository, user_state

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

#: Two that run side by side write the same file; the third takes the work of both.
TASKS = [
    {"id": "one", "title": "One"},
    {"id": "two", "title": "Two"},
    {"id": "three", "title": "Three", "dependencies": ["one", "two"]},
]
DOER = """
import os, pathlib, re, subprocess, sys, time
prompt = sys.stdin.read()
name = re.search("# Task (\\\\w+)", prompt)[1]
here, met = pathlib.Path.cwd(), pathlib.Path(os.environ["HOME"]) / "met"
met.mkdir(exist_ok=True)
(met / name).touch()
while name != "three" and len(list(met.iterdir())) < 2:  # until both are at work
    time.sleep(0.02)
for branch in re.findall("\\\\(branch (.*)\\\\)", prompt):
    subprocess.run(["git", "show", f"{branch}:{branch[-3:]}.txt"], check=True)
for folder in re.findall("\\\\(folder (.*)\\\\)", prompt):
    assert pathlib.Path(folder, folder[-3:] + ".txt").exists()
assert not list(here.glob("one.txt")) + list(here.glob("two.txt"))
(here / f"{name}.txt").write_text(name)
"""


def carry_out(project: Project, folder: Path, tmp_path: Path) -> dict[str, Any]:
    """Run the plan in a folder; the plan as it ended."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "doer.py").write_text(DOER)
    (tmp_path / "tasks.json").write_text(json.dumps(TASKS))
    ended = project.leadhand(
        "plan", "new", "Write", "--tasks", str(tmp_path / "tasks.json"), "--no-refine", "--json",
        "--cwd", str(folder), "--retries", "0", "--merge", "none",
        "--doer", f"HOME='{home}' python3 '{tmp_path / 'doer.py'}'",
        "--checker", "sole: test $(ls *.txt | grep -c 'one\\|two\\|three') = 1", timeout=200,
    )  # fmt: skip
    assert ended.code == 0, (ended.out, ended.err)
    plan: dict[str, Any] = project.leadhand(
        "plan", "show", ended.json()["session_id"], "--json"
    ).json()
    return plan


def test_three_tasks_in_one_repository(project: Project, tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo")
    for name in ("one.txt", "two.txt"):
        git(repo, "rm", "-q", "-f", "--cached", name)
    git(repo, "commit", "-qm", "second")
    before, head = user_state(repo), git(repo, "rev-parse", "HEAD")
    plan = carry_out(project, repo, tmp_path)
    assert user_state(repo) == before
    for task in plan["tasks"]:
        branch = f"leadhand/{plan['session']}/{task['id']}"
        assert (task["verified"], task["branch"], task["base"]) == (True, branch, head)
        assert git(repo, "diff", "--name-only", head, branch) == f"{task['id']}.txt"
        assert git(Path(task["folder"]), "status", "--porcelain") == ""
    kept = project.leadhand("worktree", "clean", plan["session"], "one")
    assert (kept.code, "has commits that 'main' has not" in kept.out) == (3, True), kept
    cleaned = project.leadhand("worktree", "clean", plan["session"], "--force", "--json")
    assert cleaned.code == 0, cleaned
    assert [one["task"] for one in cleaned.json()["cleaned"]] == ["one", "two", "three"]
    assert not any(Path(task["folder"]).exists() for task in plan["tasks"])
    assert git(repo, "show", f"leadhand/{plan['session']}/two:two.txt") == "two"
    assert user_state(repo) == before
    shown = project.leadhand("worktree", "list", plan["session"]).out
    assert shown.count("cleaned") == 3


def test_three_tasks_in_a_plain_folder(project: Project, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "given").write_text("mine")
    plan = carry_out(project, folder, tmp_path)
    assert [one.name for one in folder.iterdir()] == ["given"]
    for task in plan["tasks"]:
        copy = Path(task["folder"])
        assert sorted(one.name for one in copy.iterdir()) == ["given", f"{task['id']}.txt"]
        assert task["branch"] is None
    kept = project.leadhand("worktree", "clean", plan["session"])
    assert (kept.code, kept.out.count("differ from the original")) == (3, 3), kept
    assert project.leadhand("worktree", "clean", plan["session"], "--force").code == 0
    assert not any(Path(task["folder"]).exists() for task in plan["tasks"])
