"""A lease that the heart renews is passed on to the launcher, however busy the output loop is."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from workers.processes.output import Capture
from workers.processes.process import Command, run

LEASE_S = 0.8
BLOCKED_S = 2.5


@pytest.fixture
def _blocked_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    write = Capture.write

    def slow(self: Capture, chunk: bytes) -> None:
        time.sleep(BLOCKED_S)
        write(self, chunk)

    monkeypatch.setattr(Capture, "write", slow)


def command(folder: Path, line: str, *, renewed_s: float) -> Command:
    """A command whose lease is renewed for some seconds."""
    end = time.monotonic() + renewed_s
    return Command(
        line,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin"},
        spill=folder / "spill",
        timeout_s=30,
        until=lambda: min(time.monotonic(), end) + LEASE_S,
    )


@pytest.mark.usefixtures("_blocked_writes")
def test_body_survives_a_write_that_blocks_longer_than_its_lease(tmp_path: Path) -> None:
    line = "echo first; sleep 1.8; touch survived"
    result = run(command(tmp_path, line, renewed_s=30), threading.Event())
    assert (tmp_path / "survived").exists()
    assert (result.exit_code, result.stdout.text) == (0, "first\n")


@pytest.mark.usefixtures("_blocked_writes")
def test_body_ends_with_its_lease_while_a_write_blocks(tmp_path: Path) -> None:
    line = "echo first; sleep 1.8; touch survived"
    result = run(command(tmp_path, line, renewed_s=0.1), threading.Event())
    assert result.cancelled
    assert not (tmp_path / "survived").exists()


@pytest.mark.usefixtures("_blocked_writes")
def test_cancelled_body_is_not_renewed_while_a_write_blocks(tmp_path: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    line = "echo first; sleep 1.8; touch survived"
    result = run(command(tmp_path, line, renewed_s=30), cancel)
    assert result.cancelled
    assert not (tmp_path / "survived").exists()


def test_renewals_count_while_a_tree_has_its_grace(tmp_path: Path) -> None:
    ignores = "trap '' TERM; sleep 1.5; touch survived"
    line = f'sh -c "{ignores}" & sleep 0.3'
    result = run(command(tmp_path, line, renewed_s=30), threading.Event())
    assert (tmp_path / "survived").exists()
    assert result.exit_code == 0
