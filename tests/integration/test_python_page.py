"""docs/python.md does what it says: its blocks are run against a real API."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from leadhand.client import Client
from tests.http_world import Served, served
from tests.serve_memory import TOKEN
from tests.waiting import wait_until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def end_what_is_started(api: Served) -> None:
    """Bring the session that a block starts to its end."""
    with Client(api.url, TOKEN) as client:
        [session] = wait_until(lambda: client.sessions().items, timeout=20)
    api.move(f"end/{session.id}/completed")


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs_to_its_end(number: int, tmp_path: Path):
    with served() as api:
        env = {"LEADHAND_URL": api.url, "LEADHAND_TOKEN": TOKEN, "PATH": ""}
        with subprocess.Popen(
            [sys.executable, "-P", "-c", BLOCKS[number]],
            cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as process:  # fmt: skip
            end_what_is_started(api)
            out, _ = process.communicate(timeout=20)
    assert process.returncode == 0, out
    assert "session.created" in out
    assert "accept" in out
