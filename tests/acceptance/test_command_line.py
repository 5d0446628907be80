"""A person's path through the command line, on the embedded stack: real processes all the way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leadhand.local.user_state import read_fields
from tests.waiting import wait_until

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
HOSTILE = ("app", "api", "tasks", "workers")

Leadhand = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a user's shell has after the environment was activated, with a short lease."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LEADHAND_")}
    bin_folder = str(Path(sys.executable).parent)
    return {**env, "PATH": f"{bin_folder}{os.pathsep}{env['PATH']}", "LEADHAND_LEASE_S": "2",
            "LEADHAND_HOME": str(tmp_path / "state")}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """The example's project with its tests written, in a folder that holds hostile modules."""
    folder = tmp_path / "a project"
    shutil.copytree(EXAMPLES / "project", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in HOSTILE:
        (folder / f"{name}.py").write_text("raise SystemExit('the wrong module was imported')\n")
    subprocess.run(
        [sys.executable, EXAMPLES / "doer.py"],
        input="Write failing tests, for two are too few", text=True, cwd=folder, check=True,
        capture_output=True,
    )  # fmt: skip
    yield folder
    state = tmp_path / "state"
    pid = read_fields(state / "run.json").get("pid")
    if isinstance(pid, int):
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not (state / "run.json").exists(), timeout=20)


@pytest.fixture
def leadhand(project: Path, environment: dict[str, str]) -> Leadhand:
    """Run a command in the project's folder."""

    def leadhand(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["leadhand", *arguments],
            cwd=project, env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    return leadhand


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_the_example_runs_to_its_end_and_sums_up(leadhand: Leadhand) -> None:
    done = leadhand("workflow", str(EXAMPLES / "tdd.py"))
    assert done.returncode == 0, done.stderr
    for phase in ("red", "green", "refactor"):
        assert f"{phase}: accept after 2 iterations" in done.stdout
    assert "green 1/5 pytest: retry" in done.stdout
    assert done.stdout.replace("\n", "").isprintable()


@pytest.mark.timeout(90)
@pytest.mark.slow
def test_doctor_finds_a_sound_set_up(leadhand: Leadhand) -> None:
    done = leadhand("doctor")
    assert done.returncode == 0, done.stdout
    assert {line.split()[0] for line in done.stdout.splitlines()} <= {"ok", "warn", "mend:"}


@pytest.mark.timeout(90)
@pytest.mark.slow
def test_up_keeps_the_services_and_takes_them_down(
    leadhand: Leadhand, project: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    up = subprocess.Popen(
        ["leadhand", "up"],
        cwd=project, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert up.stdout is not None
    assert "leadhand is up at http://127.0.0.1:" in up.stdout.readline()
    assert "starting" not in leadhand("ls").stderr  # it joins the one that runs
    up.send_signal(signal.SIGINT)
    assert up.wait(timeout=30) == 0
    up.stdout.close()
    assert not (tmp_path / "state" / "run.json").exists()
