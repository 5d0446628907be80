"""The spill folder against links and folders that another user put there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from workers.processes.output import HEAD_BYTES, TAIL_BYTES, Capture
from workers.processes.process import Command, ProcessResult, run
from workers.processes.user_folders import FolderForeign, claim_folder

STRANGER = 65534

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's folder")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def run_in(spill: Path, line: str = 'cat "$LEADHAND_PROMPT_FILE"') -> ProcessResult:
    command = Command(
        line, spill.parent, {"PATH": os.environ["PATH"]}, spill, 20.0, prompt="the prompt"
    )
    return run(command, threading.Event())


def test_a_folder_is_made_closed_to_others(tmp_path: Path) -> None:
    claim_folder(tmp_path / "spill")
    assert mode(tmp_path / "spill") == 0o700


def test_an_own_folder_that_was_open_is_closed(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    (tmp_path / "spill").chmod(0o777)
    claim_folder(tmp_path / "spill")
    assert mode(tmp_path / "spill") == 0o700


@pytest.mark.parametrize("before", [0o700, 0o755])
def test_a_link_is_refused_and_its_target_left_alone(tmp_path: Path, before: int) -> None:
    (tmp_path / "target").mkdir(before)
    (tmp_path / "spill").symlink_to(tmp_path / "target")
    with pytest.raises(FolderForeign, match="symbolic link"):
        claim_folder(tmp_path / "spill")
    assert mode(tmp_path / "target") == before


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spill").write_text("")
    with pytest.raises(FolderForeign, match="not a folder"):
        claim_folder(tmp_path / "spill")


@needs_root
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_folder_of_another_user_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "spill").mkdir(mode)
    os.chown(tmp_path / "spill", STRANGER, STRANGER)
    with pytest.raises(FolderForeign, match="belongs to user 65534"):
        claim_folder(tmp_path / "spill")


@needs_root
@pytest.mark.parametrize("level", ["session", "session/step.1"])
def test_no_prompt_is_written_into_a_folder_of_another_user(tmp_path: Path, level: str) -> None:
    (tmp_path / "session/step.1").mkdir(parents=True)
    os.chown(tmp_path / level, STRANGER, STRANGER)
    result = run_in(tmp_path / "session/step.1")
    assert "belongs to user 65534" in (result.not_started or "")
    assert list((tmp_path / "session/step.1").iterdir()) == []


@pytest.mark.parametrize("level", ["session", "session/step.1"])
def test_no_prompt_is_written_through_a_linked_folder(tmp_path: Path, level: str) -> None:
    target = tmp_path / "target"
    (target / "step.1").mkdir(parents=True)
    (tmp_path / level).parent.mkdir(exist_ok=True)
    (tmp_path / level).symlink_to(target)
    result = run_in(tmp_path / "session/step.1")
    assert "symbolic link" in (result.not_started or "")
    assert list(target.rglob("prompt.md")) == []


@pytest.mark.parametrize("name", ["prompt.md", "stdout.log", "stderr.log"])
def test_a_linked_file_is_replaced_and_its_target_left_alone(tmp_path: Path, name: str) -> None:
    victim, spill = tmp_path / "victim", tmp_path / "session/step.1"
    victim.write_text("precious")
    victim.chmod(0o644)
    spill.mkdir(parents=True)
    (spill / name).symlink_to(victim)
    many = HEAD_BYTES + TAIL_BYTES + 1
    result = run_in(spill, f"head -c {many} /dev/zero; head -c {many} /dev/zero >&2")
    assert result.succeeded
    assert (victim.read_text(), mode(victim)) == ("precious", 0o644)
    assert not (spill / name).is_symlink()
    assert mode(spill / name) == 0o600


def test_all_folders_of_an_attempt_are_closed_to_others(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        assert run_in(tmp_path / "root/session/step.1").succeeded
    finally:
        os.umask(umask)
    assert {mode(tmp_path / "root/session"), mode(tmp_path / "root/session/step.1")} == {0o700}


def test_output_does_not_follow_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "planted")
    taken = Capture(tmp_path / "out")
    taken.write(b"x" * (HEAD_BYTES + TAIL_BYTES + 1))
    taken.close()
    assert not (tmp_path / "planted").exists()


def test_a_worker_does_not_start_on_a_spill_folder_that_is_a_link(
    tmp_path: Path, store_url: str, broker_url: str
) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "spill").symlink_to(tmp_path / "target")
    ours = {
        "LEADHAND_REDIS_URL": store_url,
        "LEADHAND_BROKER_URL": broker_url,
        "LEADHAND_SECRET": "x" * 32,
        "LEADHAND_SPILL": str(tmp_path / "spill"),
    }
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "leadhand.serve", "worker"],
        env=os.environ | ours, capture_output=True, text=True, timeout=25, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert "LEADHAND_SPILL" in line
    assert "symbolic link" in line
