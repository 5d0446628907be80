"""A person's path through the command line, on the embedded stack: real processes all the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leadhand.home import read_fields
from tests.waiting import wait_until

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
DOER = f"{sys.executable} {EXAMPLES / 'doer.py'}"
HOSTILE = ("app", "api", "tasks", "workers")
MAKE_PASS = ("spawn", "Make the tests of tests/test_slug.py pass", "--checker", "pytest tests/")

Leadhand = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a user's shell has after the environment was activated, with a short lease."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LEADHAND_")}
    bin_folder = str(Path(sys.executable).parent)
    return {**env, "PATH": f"{bin_folder}{os.pathsep}{env['PATH']}", "LEADHAND_LEASE_S": "2"}


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
    pid = read_fields(folder / ".leadhand" / "run.json").get("pid")
    if isinstance(pid, int):
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not (folder / ".leadhand" / "run.json").exists(), timeout=20)


@pytest.fixture
def leadhand(project: Path, environment: dict[str, str]) -> Leadhand:
    """Run a command in the project's folder."""

    def leadhand(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["leadhand", *arguments],
            cwd=project, env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    return leadhand


def overlap(checks: list[dict[str, Any]]) -> bool:
    return bool(max(c["started_ms"] for c in checks) < min(c["ended_ms"] for c in checks))


@pytest.mark.timeout(90)
def test_a_loop_is_refused_then_accepted_by_checkers_that_ran_side_by_side(
    leadhand: Leadhand, project: Path
) -> None:
    slow = f"{sys.executable} -c 'import time; time.sleep(1)'"
    done = leadhand(*MAKE_PASS, "--checker", slow, "--doer", DOER, "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "accept")
    assert result["iterations"] == 2
    assert result["exit_reason"] == ""
    first, second = result["history"]
    assert (first["verdict"], second["verdict"]) == ("retry", "accept")
    assert [check["verdict"] for check in first["checks"]] == ["retry", "accept"]
    assert "3 failed" in first["checks"][0]["feedback"]
    assert overlap(first["checks"])
    assert "findall" in (project / "textkit" / "slug.py").read_text()


@pytest.mark.timeout(90)
def test_the_example_runs_to_its_end_and_sums_up(leadhand: Leadhand) -> None:
    done = leadhand("workflow", str(EXAMPLES / "tdd.py"))
    assert done.returncode == 0, done.stderr
    for phase in ("red", "green", "refactor"):
        assert f"{phase}: accept after 2 iterations" in done.stdout
    assert "green 1/5 pytest: retry" in done.stdout
    assert done.stdout.replace("\n", "").isprintable()


@pytest.mark.timeout(90)
def test_an_exit_inside_a_checker_ends_the_workflow_with_its_reason(
    leadhand: Leadhand, project: Path
) -> None:
    (project / "three.py").write_text(
        "from leadhand import Workflow\n"
        "wf = Workflow('three', doer='echo worked')\n"
        "wf.phase('one', task='t', checker='true')\n"
        "wf.phase('two', task='t', checker=\"leadhand exit 'redesign it'\", on_fail='continue')\n"
        "wf.phase('three', task='t', checker='true')\n"
        "for name, r in wf.run().items():\n"
        "    print('RESULT', name, r.verdict, r.exit_reason)\n"
    )
    done = leadhand("workflow", "three.py")
    assert done.returncode == 2, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert told == ["RESULT one accept ", "RESULT two exit redesign it"]


@pytest.mark.timeout(90)
def test_what_ctrl_c_stopped_can_be_resumed_and_is_accepted(
    leadhand: Leadhand, project: Path, environment: dict[str, str]
) -> None:
    leadhand("ls")  # the services are up from here on
    process = subprocess.Popen(
        ["leadhand", *MAKE_PASS, "--doer", f"{DOER} 3"],
        cwd=project, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    session = process.stdout.readline().split()[1].rstrip(":")
    while "doer: runs" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert f"leadhand resume {session}" in err
    assert leadhand("resume", session).returncode == 0
    assert leadhand("wait", session, "--summary").stdout.split()[2:4] == ["completed:", "accept"]


@pytest.mark.timeout(120)
def test_a_session_outlives_the_death_of_everything(leadhand: Leadhand, project: Path) -> None:
    def view() -> Any:
        return json.loads(leadhand("show", session, "--json").stdout)

    session = leadhand(*MAKE_PASS, "--doer", f"{DOER} 2", "--detach").stdout.strip()
    wait_until(lambda: view()["session"]["progress"]["running"])
    pid = read_fields(project / ".leadhand" / "run.json")["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    done = leadhand("watch", session)
    assert done.returncode == 0, done.stderr
    shown = view()
    assert [entry["verdict"] for entry in shown["ledger"]] == ["retry", "accept"]
    assert shown["session"]["counters"]["attempts_lost"] == 1


@pytest.mark.timeout(90)
def test_what_cannot_be_run_is_refused_in_a_sentence_and_leaves_nothing(
    leadhand: Leadhand,
) -> None:
    for line, said in (
        ("spawn t --checker true --agent nobody", "nobody"),
        ("spawn t --checker /no/such/checker --doer true", "'/no/such/checker' is not found"),
        ("show deadbeef", "'deadbeef' is not found"),
        ("resume deadbeef", "'deadbeef' is not found"),
    ):
        done = leadhand(*line.split())
        assert done.returncode == 1
        assert said in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
    assert json.loads(leadhand("ls", "--json").stdout)["items"] == []


@pytest.mark.timeout(90)
def test_doctor_finds_a_sound_set_up(leadhand: Leadhand) -> None:
    done = leadhand("doctor")
    assert done.returncode == 0, done.stdout
    assert {line.split()[0] for line in done.stdout.splitlines()} <= {"ok", "warn", "mend:"}


@pytest.mark.timeout(90)
def test_up_keeps_the_services_and_takes_them_down(
    leadhand: Leadhand, project: Path, environment: dict[str, str]
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
    assert not (project / ".leadhand" / "run.json").exists()
