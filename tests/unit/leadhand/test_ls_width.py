"""`leadhand ls` at a terminal: each line fits its width."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from leadhand.cli.render.tables import display_width
from tests.scripted_api import TOKEN, Script, scripted_api

PROGRAM = (sys.executable, "-P", "-m", "leadhand", "ls")
WHY = {"code": "failed_step", "text": "the doer exited with code 1: ValueError: no such parser"}


@pytest.fixture
def api() -> Iterator[tuple[str, Script]]:
    with scripted_api() as (url, script):
        script.add("1a2b3c4d", "active", name="Write the parser, and then everything that uses it")
        script.add("2a2b3c4d", "failed", name="tdd", kind="workflow", warnings=["one", "two"])
        script.add(
            "3a2b3c4d", "completed", name="日本語の名前はとても長いのでここで切れる", kind="flow"
        )
        script._sessions["2a2b3c4d"]["view"]["reason"] = WHY
        yield url, script


def listed(url: str, columns: int) -> list[str]:
    """The lines of `leadhand ls` at a pseudo-terminal of this width."""
    near, far = pty.openpty()
    env = {**os.environ, "LEADHAND_URL": url, "LEADHAND_TOKEN": TOKEN, "COLUMNS": str(columns)}
    process = subprocess.Popen(PROGRAM, stdin=far, stdout=far, stderr=far, env=env)
    os.close(far)
    seen = b""
    try:
        while part := _read(near):
            seen += part
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(near)
    return seen.decode().splitlines()


def _read(near: int) -> bytes:
    try:
        return os.read(near, 65536)
    except OSError:  # the command has ended
        return b""


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (60, ["ID", "NAME", "STATUS", "CREATED"]),
        (80, ["ID", "KIND", "NAME", "STATUS", "ITERATIONS", "CREATED"]),
        (120, ["ID", "KIND", "NAME", "STATUS", "ITERATIONS", "CREATED", "REASON"]),
    ],
)
def test_each_line_fits_the_terminal(
    api: tuple[str, Script], columns: int, shown: list[str]
) -> None:
    lines = listed(api[0], columns)
    assert lines[0].split() == shown
    assert max(map(display_width, lines)) <= columns
    assert len(lines) == 4
    for line, id_, status in zip(
        lines[1:], ("1a2b", "2a2b", "3a2b"), ("active", "failed (2 warnings)", "completed"),
        strict=True,
    ):  # fmt: skip
        assert line.startswith(id_)
        assert status in line
        assert " ago" in line or "now" in line
    assert ("the doer exited" in "\n".join(lines)) is ("REASON" in shown)


def test_a_pipe_gets_all_columns(api: tuple[str, Script]) -> None:
    env = {**os.environ, "LEADHAND_URL": api[0], "LEADHAND_TOKEN": TOKEN, "COLUMNS": "60"}
    done = subprocess.run(PROGRAM, env=env, capture_output=True, text=True, timeout=60)
    assert "REASON" in done.stdout
    assert "no such parser" in done.stdout
