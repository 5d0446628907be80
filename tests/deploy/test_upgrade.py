"""A running fleet is upgraded: two versions of the code on one Redis, with two schemas."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.program import SCHEMA_VERSION
from tests.deploy.compose import ROOT
from tests.integration.fleet import Fleet
from tests.waiting import wait_until

#: What the new API does with a submit.
SUBMIT = """
import sys
from app.settings import Settings
from leadhand.documents import LoopDocument
from tasks.wiring import make_engine
engine, _ = make_engine(Settings.from_env())
print(engine.submit(LoopDocument.model_validate_json(sys.argv[1])).session)
"""
DOCUMENT = '{"task": "x", "doer": {"command": "true"}, "checkers": ["true"]}'


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=2)
    yield fleet
    fleet.close()


@pytest.fixture
def newer(tmp_path: Path) -> str:
    """The next version of the code: the same but for the schema of its programs."""
    folder = tmp_path / "newer"
    for package in ("app", "tasks", "workers", "api", "leadhand"):
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    program = folder / "app" / "program.py"
    text, count = re.subn(
        r"^SCHEMA_VERSION = \d+$",
        f"SCHEMA_VERSION = {SCHEMA_VERSION + 1}",
        program.read_text(),
        flags=re.MULTILINE,
    )
    assert count == 1
    program.write_text(text)
    return str(folder)


@pytest.mark.timeout(150)
def test_an_old_worker_leaves_newer_programs_to_newer_workers(fleet: Fleet, newer: str) -> None:
    old_worker = fleet.worker("old")
    session = subprocess.run(
        [sys.executable, "-P", "-c", SUBMIT, DOCUMENT], check=True, timeout=20,
        env={**fleet.env, "PYTHONPATH": newer}, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    log = fleet.folder / "old.log"
    wait_until(lambda: "claim refused" in log.read_text(), timeout=20)
    assert "why=schema" in log.read_text()
    ours = fleet.loop("true", "true")
    assert fleet.ended(ours).verdict == "accept", "old programs go on meanwhile"
    assert fleet.engine.session(session).status == "active", "the newer one waits"

    fleet.worker("new", PYTHONPATH=newer)
    # A step that was refused again and again is hinted every 48 s at the latest.
    assert fleet.ended(session, timeout=60).verdict == "accept"
    assert {str(s.worker).partition("/")[0] for s in fleet.engine.steps(session).items} == {"new"}
    old_worker.terminate()
    assert old_worker.wait(timeout=20) == 0
    left = fleet.loop("true", "true")
    assert fleet.ended(left).verdict == "accept", "a newer worker carries out older programs"
