"""What a clone brings runs only as its user approved it: [worktree] prepare, and leadhand trust."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.scripted_api import Script
from tests.unit.leadhand.cli.conftest import Leadhand

PREPARE = "[worktree]\ncopy = ['.env']\nprepare = 'make deps'\n"
WORKFLOW = """\
from leadhand.workflow import Workflow
wf = Workflow("w", doer="true")
wf.phase("one", "t", "true")
wf.run()
"""
STARTS = [
    ("spawn", "t", "--checker", "true", "--doer", "true"),
    ("spawn", "t", "--checker", "true", "--doer", "true", "--detach"),
    ("workflow", "wf.py"),
    ("workflow", "wf.py", "--detach"),
]


@pytest.fixture
def clone(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a leadhand.toml, which is the current folder, of a user with a home."""
    for name, folder in (("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(name, str(elsewhere / folder))
    monkeypatch.setenv("HOME", str(elsewhere / "home"))
    clone = elsewhere / "clone"
    (clone / "src").mkdir(parents=True)
    git(clone, "init", "-q", "-b", "main")
    (clone / "leadhand.toml").write_text(PREPARE)
    (clone / "wf.py").write_text(WORKFLOW)
    monkeypatch.chdir(clone)
    return clone


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    return subprocess.check_output(("git", *who, *arguments), cwd=folder, text=True)


@pytest.mark.parametrize("start", STARTS)
def test_prepare_of_a_clone_runs_only_once_it_is_approved(
    start: tuple[str, ...], script: Script, leadhand: Leadhand, clone: Path
) -> None:
    code, _, err = leadhand(*start, "--worktree")
    assert (code, script.submitted) == (1, [])
    assert "make deps" in err
    assert f"`leadhand trust {clone}`" in err
    assert leadhand(*start, "--worktree", "--no-prepare")[0] == 0
    [plain] = script.submitted
    assert plain["worktree"] == {"copy_files": [".env"], "prepare": None}
    code, out, _ = leadhand("trust", "--yes")
    assert (code, "  prepare = 'make deps'" in out) == (0, True), "shown whole"
    assert leadhand(*start, "--worktree")[0] == 0
    assert script.submitted[-1]["worktree"]["prepare"] == "make deps"

    (clone / "leadhand.toml").write_text(PREPARE.replace("deps", "deps evil"))
    code, _, err = leadhand(*start, "--worktree")
    assert (code, len(script.submitted), "deps evil" in err) == (1, 2, True)
    assert leadhand("trust", "--yes")[0] == 0
    assert leadhand("trust", "--remove")[0] == 0
    assert leadhand(*start, "--worktree")[0] == 1


def test_prepare_of_a_flow_run_needs_the_approval_of_the_top_of_the_repository(
    script: Script, leadhand: Leadhand, clone: Path
) -> None:
    code, _, err = leadhand("flow", "run", "x", "--worktree", "--cwd", "src")
    assert (code, f"`leadhand trust {clone}`" in err) == (1, True)
    assert leadhand("trust", "src", "--yes")[0] == 0
    assert "not approved" not in leadhand("flow", "run", "x", "--worktree", "--cwd", "src")[2]
    code, _, err = leadhand("flow", "run", "x", "--no-prepare")
    assert (code, "--no-prepare needs --worktree" in err) == (1, True)


def test_files_that_are_copied_need_no_approval(
    script: Script, leadhand: Leadhand, clone: Path
) -> None:
    (clone / "leadhand.toml").write_text("[worktree]\ncopy = ['.env']\n")
    assert leadhand(*STARTS[0], "--worktree")[0] == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_file_of_another_user_prepares_nothing_and_cannot_be_approved(
    script: Script, leadhand: Leadhand, clone: Path
) -> None:
    leadhand("trust", "--yes")
    os.chown(clone / "leadhand.toml", 54321, 54321)
    code, _, err = leadhand(*STARTS[0], "--worktree")
    assert (code, "belongs to another user" in err) == (1, True)
    leadhand("trust", "--remove")
    assert "belongs to another user" in leadhand("trust", "--yes")[2]


def test_approval_of_the_gates_shows_the_prepare_that_it_covers(
    script: Script, leadhand: Leadhand, clone: Path
) -> None:
    guard = "[guard.gates.build]\ncommand = 'make'\n"
    (clone / "leadhand.toml").write_text(guard + PREPARE)
    code, out, _ = leadhand("hook", "trust", "--yes")
    assert (code, "prepare = 'make deps'" in out) == (0, True)
    assert leadhand(*STARTS[0], "--worktree")[0] == 0
    leadhand("trust", "--remove")
    leadhand("trust", "--yes")
    assert "approved" not in leadhand("hook", "trust")[1], "one approval is for both"
    (clone / "leadhand.toml").write_text(PREPARE)
    assert "has no [guard] any more" in leadhand("hook", "trust")[1]
    assert leadhand("trust", "--yes")[0] == 0
    assert "there is nothing to approve" in leadhand("hook", "trust", "--yes")[2]


def test_worktrees_of_a_repository_have_the_approvals_of_its_main_folder(
    script: Script, leadhand: Leadhand, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of a session, in which an agent starts a session with a worktree."""
    git(clone, "add", "leadhand.toml")
    git(clone, "commit", "-q", "-m", "Begin")
    leadhand("trust", "--yes")
    git(clone, "worktree", "add", "-q", "../other")
    other = clone.parent / "other"
    monkeypatch.chdir(other)
    assert leadhand(*STARTS[0], "--worktree")[0] == 0
    (other / "leadhand.toml").write_text(PREPARE.replace("deps", "evil"))
    assert leadhand(*STARTS[0], "--worktree")[0] == 1, "an edit there is not approved"

    false = clone.parent / "false"
    (false / "private" / "worktrees" / "x").mkdir(parents=True)
    (false / "leadhand.toml").write_text(PREPARE)
    (false / ".git").write_text((other / ".git").read_text())
    monkeypatch.chdir(false)
    assert leadhand(*STARTS[0], "--worktree")[0] == 1, "the repository does not list it"
    private = false / "private" / "worktrees" / "x"
    (private / "gitdir").write_text(f"{false / '.git'}\n")
    (private / "commondir").write_text(f"{clone / '.git'}\n")
    (false / ".git").write_text(f"gitdir: {private}\n")
    assert leadhand(*STARTS[0], "--worktree")[0] == 1, "nor is its list the repository's"


def test_agent_in_a_session_cannot_approve(
    leadhand: Leadhand, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADHAND_SESSION", "0000000a")
    for command in (("trust", "--yes"), ("trust", "--remove")):
        code, _, err = leadhand(*command)
        assert (code, "inside a session" in err) == (1, True)


def test_flows_and_functions_are_approved_whole_and_on_demand(
    leadhand: Leadhand, clone: Path
) -> None:
    for name in ("flows/one.json", "tools/one.py", "tools/data/words.txt"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(f"text of {name}")
    assert str(clone / "flows") not in leadhand("trust", "--yes")[1]
    out = leadhand("trust", "--all", "--yes")[1]
    assert all(f"  text of {name}" in out for name in ("flows/one.json", "tools/data/words.txt"))
    assert "approved already" in leadhand("trust", "--all", "--yes")[1]
    (clone / "tools" / "two.py").write_text("")
    out = leadhand("trust", "--all", "--yes")[1]
    assert ("text of tools/one.py" in out, "text of flows" in out) == (True, False)
    (clone / "tools" / "__pycache__").mkdir()
    code, _, err = leadhand("trust", "--all", "--yes")
    assert (code, "compiled files, which may hide what runs" in err) == (1, True)
