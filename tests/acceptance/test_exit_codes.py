"""What commands leave with, and what Ctrl-C does to a session that is waited for."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.acceptance.project import WAITS, Project
from tests.processes import handles_sigterm
from tests.waiting import wait_until

pytestmark = pytest.mark.acceptance


def spawned(project: Project, *arguments: str) -> int:
    return project.leadhand("spawn", "t", "--json", *arguments).code


def test_the_exit_code_says_how_a_session_ended(project: Project):
    accepted = ("--doer", "true", "--checker", "true")
    assert spawned(project, *accepted) == 0
    assert spawned(project, "--doer", "true", "--checker", "false", "--max-iterations", "1") == 3
    assert spawned(project, "--doer", "exit 7", "--checker", "true") == 3
    assert spawned(project, *accepted, "--max-iterations", "0") == 3
    assert spawned(project, "--doer", "leadhand exit no", "--checker", "true") == 2
    assert spawned(project, "--doer", "true") == 1
    assert spawned(project, *accepted, "--no-such-option") == 1
    statuses = sorted(session["status"] for session in project.sessions())
    assert statuses == ["completed", "exited", "failed", "failed", "failed"]


@pytest.mark.slow
def test_wait_leaves_with_the_worst_of_its_sessions_and_sums_up_each(project: Project):
    done = project.detached("--doer", "true", "--checker", "true", "--label", "good one")
    failed = project.detached("--doer", "true", "--checker", "false", "--max-iterations", "1")
    slow = project.detached("--doer", "touch begun; sleep 30", "--checker", "true")
    wait_until(lambda: (project.folder / "begun").exists(), timeout=15)
    assert project.leadhand("abort", slow, "--reason", "enough").code == 0
    assert project.leadhand("wait", done).code == 0
    assert project.leadhand("wait", done, slow).code == 2
    ended = project.leadhand("wait", done, failed, slow, "--summary")
    assert ended.code == 3
    first, second, third = ended.out.splitlines()
    assert first == f"[good one ({done})] completed: accept after 1 iteration"
    assert second.startswith(f"[do it ({failed})] failed: max_iterations after 1 iteration: ")
    assert third.startswith(f"[do it ({slow})] aborted: aborted after ")
    assert third.endswith(": enough")
    both = project.leadhand("wait", done, failed, "--json").json()
    assert [one["session_id"] for one in both["sessions"]] == [done, failed]
    assert project.leadhand("wait", done, "deadbeef").code == 1


def waiting(project: Project, first: str = "") -> subprocess.Popen[str]:
    """A spawn whose doer runs, and has done something first."""
    project.write("doer.py", f"{first}\n{WAITS}")
    command = project.begin(
        "spawn", "t", "--doer", "python3 doer.py", "--checker", "true", "--json"
    )
    wait_until(lambda: project.lines("starts"), timeout=15)
    return command


def test_ctrl_c_stops_the_session_and_says_how_to_go_on_with_it(project: Project):
    command = waiting(project)
    command.send_signal(signal.SIGINT)
    ended = project.ended(command)
    assert ended.code == 2
    session = ended.json()["session_id"]
    assert ended.json()["status"] == "stopped"
    assert f"leadhand resume {session}" in ended.err
    assert "Traceback" not in ended.err
    assert project.leadhand("wait", session).code == 2
    assert project.leadhand("resume", session).code == 0
    (project.folder / "go").touch()
    ended = project.leadhand("wait", session, "--json")
    assert (ended.code, ended.json()["verdict"]) == (0, "accept")
    assert len(project.lines("starts")) == 2


def test_a_second_ctrl_c_aborts(project: Project):
    command = waiting(project, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    command.send_signal(signal.SIGINT)
    assert command.stderr is not None
    while "again to abort" not in (line := command.stderr.readline()):
        assert line
    command.send_signal(signal.SIGINT)
    ended = project.ended(command)
    assert (ended.code, ended.json()["status"]) == (2, "aborted")
    assert project.leadhand("resume", ended.json()["session_id"]).code == 1


@pytest.mark.slow
def test_a_failed_session_goes_on_with_turns_of_its_own(project: Project):
    failed = project.detached(
        *("--doer", "echo x >> tries", "--checker", 'test "$(wc -l < tries)" = 3'),
        *("--max-iterations", "2"),
    )
    assert project.leadhand("wait", failed).code == 3
    assert project.leadhand("resume", failed).code == 0
    ended = project.leadhand("wait", failed, "--json")
    assert (ended.code, ended.json()["verdict"]) == (0, "accept")
    assert [entry["verdict"] for entry in ended.json()["history"]] == ["retry", "retry", "accept"]


SCRIPT = """
from leadhand import Workflow
from leadhand.loop import spawn_and_run
wf = Workflow("w", doer="python3 doer.py")
wf.phase("a", task="t", checker="true")
print({call})
"""


@pytest.mark.parametrize("call", ["wf.run()", "spawn_and_run('t', 'true', doer='python3 doer.py')"])
def test_ctrl_c_ends_a_python_script_without_a_traceback(project: Project, call: str):
    project.write("doer.py", WAITS)
    project.write("script.py", SCRIPT.replace("{call}", call))
    command = project.start([sys.executable, "script.py"])
    wait_until(lambda: project.lines("starts"), timeout=15)
    command.send_signal(signal.SIGINT)
    ended = project.ended(command)
    assert ended.code == 1
    stopping, stopped = ended.err.splitlines()[-2:]
    assert "press Ctrl-C again to abort it" in stopping
    assert " is stopped; continue with: leadhand resume " in stopped
    assert "Traceback" not in ended.err


def test_ctrl_c_ends_a_workflow_file_with_its_summary(project: Project):
    project.write("doer.py", WAITS)
    project.write("script.py", SCRIPT.replace("{call}", "wf.run()"))
    command = project.begin("workflow", "script.py")
    wait_until(lambda: project.lines("starts"), timeout=15)
    command.send_signal(signal.SIGINT)
    ended = project.ended(command)
    assert ended.code == 2
    assert "Traceback" not in ended.err
    assert " is stopped; continue with: leadhand resume " in ended.err


@pytest.mark.parametrize("verb", ["spawn", "workflow", "wait", "watch", "logs -f", "transcript -f"])
@pytest.mark.slow
def test_sigterm_ends_a_waiting_command_and_its_session_continues(project: Project, verb: str):
    project.write("doer.py", WAITS)
    project.write("script.py", SCRIPT.replace("{call}", "wf.run()"))
    doer = ("--doer", "python3 doer.py", "--checker", "true")
    if verb == "spawn":
        command = project.begin("spawn", "t", *doer, "--json")
    elif verb == "workflow":
        command = project.begin("workflow", "script.py", "--json")
    else:
        command = project.begin(*verb.split(), project.detached(*doer))
    wait_until(lambda: project.lines("starts"), timeout=15)
    wait_until(lambda: handles_sigterm(command.pid), timeout=15)
    command.send_signal(signal.SIGTERM)
    ended = project.ended(command)
    (session,) = (one["id"] for one in project.sessions())
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == (
        f"leadhand: session {session} continues; follow it with: leadhand watch {session}"
    )
    (project.folder / "go").touch()
    assert project.leadhand("wait", session).code == 0
