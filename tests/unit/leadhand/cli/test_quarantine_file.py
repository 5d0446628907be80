"""`[[quarantine]]` of leadhand.toml is read from the newest commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click
import pytest

from leadhand.cli.options import SessionSettings
from tests.scripted_api import Script
from tests.unit.leadhand.cli.conftest import Leadhand

ENTRY = '[[quarantine]]\ntest = "test_a.py::test_b"\nowner = "ann"\nuntil = 2026-12-31\n'
FOUND = [{"test": "test_a.py::test_b", "owner": "ann", "until": "2026-12-31"}]


def git(folder: Path, *arguments: str) -> None:
    named = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *named, *arguments], cwd=folder, check=True, capture_output=True)


def test_commit_counts_and_not_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "leadhand.toml"
    assert SessionSettings(str(tmp_path)).read_quarantine() == []
    file.write_text(ENTRY)
    assert SessionSettings(str(tmp_path)).read_quarantine() == FOUND, "a plain folder has no commit"
    git(tmp_path, "init", "-q")
    assert SessionSettings(str(tmp_path)).read_quarantine() == [], "it is not committed"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    file.write_text(ENTRY + ENTRY.replace("test_b", "test_c"))
    (tmp_path / "sub").mkdir()
    assert SessionSettings(str(tmp_path / "sub")).read_quarantine() == FOUND
    file.unlink()
    assert SessionSettings(str(tmp_path)).read_quarantine() == FOUND


def test_by_products_are_those_of_the_commit(tmp_path: Path) -> None:
    file = tmp_path / "leadhand.toml"
    git(tmp_path, "init", "-q")
    file.write_text('[worktree]\nprepare = "x"\nleave_out = ["out/", "*.log"]\n')
    assert SessionSettings(str(tmp_path)).read_leave_out() == {}, "it is not committed"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    file.unlink()
    found = {"leave_out": ["out/", "*.log"]}
    assert SessionSettings(str(tmp_path)).read_leave_out() == found
    file.write_text("[worktree]\nleave_out = 3\n")
    git(tmp_path, "commit", "-qam", "two")
    with pytest.raises(click.ClickException, match=r"leadhand.toml: worktree.leave_out"):
        SessionSettings(str(tmp_path)).read_leave_out()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[quarantine]\n", "is not TOML"),
        (ENTRY.replace('owner = "ann"\n', ""), "leadhand.toml: quarantine.0.owner"),
        (ENTRY.replace("2026-12-31", '"soon"'), "leadhand.toml: quarantine.0.until"),
        ("quarantine = 3\n", "leadhand.toml: quarantine is 3"),
        ("[quarantined]\n", "did you mean 'quarantine'?"),
    ],
)
def test_entry_that_is_not_valid_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "leadhand.toml").write_text(text)
    with pytest.raises(click.ClickException) as raised:
        SessionSettings(str(tmp_path)).read_quarantine()
    assert said in str(raised.value)


def test_loops_workflows_and_plans_are_submitted_with_it(
    script: Script, leadhand: Leadhand, tmp_path: Path
) -> None:
    (tmp_path / "leadhand.toml").write_text(ENTRY)
    (tmp_path / "wf.py").write_text(
        "from leadhand import Workflow\nwf = Workflow('w')\nwf.phase('p', 't', 'true')\nwf.run()\n"
    )
    folder = ("--cwd", str(tmp_path), "--detach")
    leadhand("spawn", "t", "--checker", "true", *folder)
    leadhand("workflow", str(tmp_path / "wf.py"), *folder)
    leadhand("plan", "new", "r", "--checker", "true", *folder)
    loop, workflow, plan = script.submitted
    assert loop["quarantine"] == workflow["phases"][0]["quarantine"] == plan["quarantine"] == FOUND
