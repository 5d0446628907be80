"""The caller's process is killed with SIGKILL: a resume repeats nothing that was completed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.http_world import TOKEN, Served

PROGRAM = Path(__file__).with_name("killed_workflow.py")
WHOLE = "e(d(b(a()) c(a())))"


def start(api: Served, folder: Path, killed_at: str = "") -> int:
    command = [sys.executable, "-P", str(PROGRAM), api.url, TOKEN, str(folder), killed_at]
    return subprocess.run(command, timeout=60, check=False).returncode


def calls(folder: Path) -> Counter[str]:
    return Counter((folder / "calls").read_text().split())


@pytest.mark.timeout(120)
def test_killed_program_continues_where_it_was(api: Served, tmp_path: Path) -> None:
    assert start(api, tmp_path, killed_at="c") == -9
    assert start(api, tmp_path) == 0
    assert (tmp_path / "result").read_text() == WHOLE
    # The step in which it was killed had no outcome, so it runs again; no other does.
    assert calls(tmp_path) == {"a": 1, "b": 1, "c": 2, "d": 1, "e": 1}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kill_in_each_step_in_turn_repeats_only_that_step(api: Served, tmp_path: Path) -> None:
    for name in "abcde":
        assert start(api, tmp_path, killed_at=name) == -9
    assert start(api, tmp_path) == 0
    assert (tmp_path / "result").read_text() == WHOLE
    assert calls(tmp_path) == dict.fromkeys("abcde", 2)
