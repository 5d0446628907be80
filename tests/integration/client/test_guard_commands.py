"""`leadhand hook stop`, `hook event` and `leadhand guard` against an API of their own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import uuid
from pathlib import Path

import pytest

from leadhand.client.client import Client
from tests.http_world import TOKEN, Served
from tests.integration.client.test_inbox_commands import (
    PROGRAM,
    Leadhand,
    Shown,
    api,
    child_of,
    leadhand,
)
from tests.waiting import wait_until

__all__ = ["api", "leadhand"]

BUILD = "test -f ok || { echo error: no ok; exit 1; }"


class Agent:
    """An agent that stops in a folder; each stop is a process of its own."""

    def __init__(self, folder: Path, leadhand: Leadhand, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.session = uuid.uuid4().hex
        self.setenv = patch.setenv
        self._leadhand = leadhand

    def guard(self, toml: str, *, approve: bool = True) -> None:
        (self.folder / "leadhand.toml").write_text(toml)
        if approve:
            assert self.run("hook", "trust", "--yes")[0] == 0

    def event(self, **fields: object) -> str:
        """The JSON of a hook."""
        event = {
            "session_id": self.session, "prompt_id": "p1", "cwd": str(self.folder),
            "hook_event_name": "Stop", "stop_hook_active": False,
        }  # fmt: skip
        return json.dumps(event | fields)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """A hook in a process of its own."""
        process = subprocess.Popen(
            [*PROGRAM, *arguments], cwd=self.folder, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(self.event())
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, *arguments: str, **fields: object) -> Shown:
        return self._leadhand(*arguments, stdin=self.event(**fields))

    def stop(self, *, timeout: int = 60, **fields: object) -> dict[str, str]:
        """The hook's answer; empty if the agent may stop without a word."""
        code, out, err = self.run("hook", "stop", "--timeout", str(timeout), **fields)
        assert (code, err) == (0, ""), err
        return json.loads(out) if out else {}


@pytest.fixture
def agent(leadhand: Leadhand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    monkeypatch.chdir(folder)
    return Agent(folder, leadhand, monkeypatch)


def guard_of(api: Served, agent: Agent):
    with Client(api.url, TOKEN) as client:
        (guard,) = client.guards(agent.session).items
    return guard


def test_hook_blocks_a_failing_build_counts_and_lets_the_fixed_one_pass(
    api: Served, agent: Agent
) -> None:
    agent.guard(f"[guard.gates.build]\ncommand = '{BUILD}'\n")
    for number in (1, 2):
        answer = agent.stop()
        assert answer["decision"] == "block"
        assert answer["reason"].startswith(f"The build fails (attempt {number} of 5).")
        assert "error: no ok" in answer["reason"]
    (agent.folder / "ok").touch()
    assert agent.stop() == {"systemMessage": "Leadhand: All gates passed: build."}
    assert agent.stop() == {}
    guard = guard_of(api, agent)
    assert (guard.stops, guard.failed_stops, guard.retries) == (4, 2, {})
    with Client(api.url, TOKEN) as client:
        entries = client.ledger(guard.guard).items
    assert [one.verdict for one in entries] == ["retry", "retry", "accept", "accept"]
    skipped = [check["name"] for check in entries[2].checks if check["verdict"] == "skipped"]
    assert skipped == ["test", "docs", "pr", "review"]


def test_file_that_has_changed_since_it_was_approved_runs_nothing(
    api: Served, agent: Agent
) -> None:
    agent.guard("[guard.gates.build]\ncommand = 'touch ran; exit 1'\n", approve=False)
    code, out, err = agent.run("hook", "stop")
    assert code == 0
    assert "decision" not in json.loads(out)
    assert "leadhand hook trust" in err
    agent.guard("[guard.gates.build]\ncommand = 'exit 1'\n")
    assert agent.stop()["decision"] == "block"
    agent.guard("[guard.gates.build]\ncommand = 'touch ran; exit 1'\n", approve=False)
    assert "is not approved as it is now" in agent.run("hook", "stop")[2]
    assert not (agent.folder / "ran").exists()
    with Client(api.url, TOKEN) as client:
        last = client.ledger(guard_of(api, agent).guard).items[-1]
    assert "is not approved as it is now" in last.feedback


def test_removed_guard_allows_with_a_warning_and_its_counters_stay(
    api: Served, agent: Agent
) -> None:
    agent.guard("[guard.gates.build]\ncommand = 'exit 1'\n")
    agent.stop()
    (agent.folder / "leadhand.toml").unlink()
    code, _, err = agent.run("hook", "stop")
    assert (code, "has no [guard] any more" in err) == (0, True), err
    assert guard_of(api, agent).retries == {"build": 1}
    agent.guard("[guard.gates.build]\ncommand = 'exit 1'\n")
    assert "attempt 2 of 5" in agent.stop()["reason"]


def test_guard_of_a_repository_holds_in_its_subfolders(agent: Agent) -> None:
    (agent.folder / ".git").mkdir()
    (agent.folder / "src").mkdir()
    agent.guard("[guard.gates.build]\ncommand = 'pwd; exit 1'\n")
    assert f"{agent.folder}\n" in agent.stop(cwd=str(agent.folder / "src"))["reason"] + "\n"


def test_file_that_cannot_be_read_allows_and_says_why(agent: Agent) -> None:
    agent.guard("[guard.gates.build]\ncommandx = 'true'\n", approve=False)
    code, _, err = agent.run("hook", "stop")
    assert code == 0
    assert "commandx" in err


def test_guard_whose_gates_are_all_disabled_lets_the_agent_stop(api: Served, agent: Agent) -> None:
    agent.guard("[guard]\norder = ['build']\n[guard.gates.build]\nenabled = false\n")
    assert agent.stop() == {}
    assert (guard_of(api, agent).active, guard_of(api, agent).stops) == (False, 1)


def test_second_hook_of_an_agent_does_not_run_the_gates(agent: Agent) -> None:
    agent.guard("[guard.gates.build]\ncommand = 'touch began; sleep 60'\n")
    first = agent.begin("hook", "stop", "--timeout", "60")
    wait_until((agent.folder / "began").exists)
    code, out, err = agent.run("hook", "stop")
    assert (code, out) == (0, "")
    assert "Stop hook already running" in err
    first.kill()
    first.communicate()


def test_hook_that_the_agent_ends_frees_the_guard_and_ends_its_gate(
    api: Served, agent: Agent
) -> None:
    agent.guard("[guard.gates.build]\ncommand = 'echo $$ > pid; exec sleep 60'\n")
    hook = agent.begin("hook", "stop", "--timeout", "60")
    wait_until(lambda: (agent.folder / "pid").exists() and (agent.folder / "pid").read_text())
    hook.send_signal(signal.SIGTERM)
    _, err = hook.communicate(timeout=20)
    assert (hook.returncode, "the agent ended the hook" in err) == (0, True), err
    pid = int((agent.folder / "pid").read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert not guard_of(api, agent).active


def test_gate_that_outlives_the_hook_allows_the_stop_in_time(api: Served, agent: Agent) -> None:
    agent.guard("[guard.gates.build]\ncommand = 'sleep 60'\n")
    answer = agent.stop(timeout=6)
    assert "did not end within the hook's time" in answer["systemMessage"]
    guard = guard_of(api, agent)
    assert (guard.failed_stops, guard.last["build"]) == (0, "unfinished")


def test_guard_inside_a_doer_shares_its_folder_and_has_counters_of_its_own(
    api: Served, agent: Agent
) -> None:
    parent = api.submit()
    child, token = child_of(api, parent)
    agent.guard("[guard.gates.build]\ncommand = 'test -z \"$LEADHAND_TOKEN\" && exit 1'\n")
    agent.setenv("LEADHAND_TOKEN", token)
    agent.setenv("LEADHAND_SESSION", child.id)
    assert agent.stop()["reason"].startswith("The build fails (attempt 1 of 5)")
    assert guard_of(api, agent).inside == child.id


def test_stop_while_leadhand_is_away_is_allowed_and_recorded_with_the_next(
    api: Served, agent: Agent
) -> None:
    agent.guard("[guard.gates.build]\ncommand = 'exit 1'\n")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    agent.setenv("LEADHAND_URL", f"http://127.0.0.1:{port}")
    code, out, err = agent.run("hook", "stop")
    assert (code, out) == (1, "")
    assert "the stop is allowed unchecked" in err
    agent.setenv("LEADHAND_URL", api.url)
    agent.stop()
    agent.stop()
    with Client(api.url, TOKEN) as client:
        warnings = client.session(guard_of(api, agent).guard).warnings
    assert len(warnings) == 1
    assert warnings[0].startswith("while the API was away: ")


def test_prompt_after_a_block_is_recorded_as_overridden(
    api: Served, agent: Agent, leadhand: Leadhand
) -> None:
    agent.guard("[guard.gates.build]\ncommand = 'exit 1'\n")
    agent.stop()
    ignored = {"hook_event_name": "Notification", "notification_type": "permission_prompt"}
    assert agent.run("hook", "event", **ignored) == (0, "", "")
    assert guard_of(api, agent).overridden == 0
    prompt = {"hook_event_name": "UserPromptSubmit", "prompt_id": "p2"}
    assert agent.run("hook", "event", **prompt) == (0, "", "")
    assert guard_of(api, agent).overridden == 1
    shown = leadhand("guard", "status", agent.session).out
    assert "stops 1, failed 1, blocked 1 (0 in a row), overridden 1, the last at" in shown
    assert "build: failed, 1 failure in a row" in shown


def test_limits_of_the_environment_win_over_the_file(api: Served, agent: Agent) -> None:
    agent.guard("[guard.gates.build]\ncommand = 'exit 1'\nlimit = 9\n")
    agent.setenv("LEADHAND_GUARD_STAGE_MAX", "1")
    agent.setenv("LEADHAND_GUARD_GLOBAL_MAX", "3")
    reasons = [agent.stop() for _ in range(3)]
    assert reasons[0]["reason"].startswith("The build fails (attempt 1 of 1)")
    assert reasons[1]["reason"].startswith("Stage limit reached (1)")
    assert reasons[2]["systemMessage"].startswith("Leadhand: Stage limit reached (1)")
    assert agent.stop()["reason"].startswith("Global stop limit reached (3)")
    agent.setenv("LEADHAND_GUARD_STALE_TIMEOUT", "59")
    code, _, err = agent.run("hook", "stop")
    assert code == 1
    assert "LEADHAND_GUARD_STALE_TIMEOUT" in err
    assert "give seconds from 60 to 86400" in err


def test_counters_are_reset_for_one_agent(agent: Agent, leadhand: Leadhand) -> None:
    agent.guard("[guard.gates.build]\ncommand = 'exit 1'\n")
    agent.stop()
    assert leadhand("guard", "reset", agent.session) == (0, "reset 1 guard\n", "")
    assert "attempt 1 of 5" in agent.stop()["reason"]
    missing = leadhand("guard", "reset")
    assert missing.code == 1
    assert "--all" in missing.err
    unknown = leadhand("guard", "reset", "nobody")
    assert (unknown.code, "no guard matches" in unknown.err) == (1, True)


def test_a_guard_is_listed_in_the_folder_that_it_guards(
    api: Served, agent: Agent, leadhand: Leadhand, tmp_path: Path
) -> None:
    agent.guard("[guard.gates.build]\ncommand = 'exit 1'\n")
    agent.stop()
    here = leadhand("ls", "--kind", "guard", "--folder", str(agent.folder)).out
    assert guard_of(api, agent).guard in here
    elsewhere = tmp_path / "elsewhere"
    assert "no sessions" in leadhand("ls", "--kind", "guard", "--folder", str(elsewhere)).out


def test_input_that_is_no_hooks_is_refused_in_one_sentence(leadhand: Leadhand) -> None:
    for text in ("", "[]", "no", '{"session_id": "a b"}'):
        refused = leadhand("hook", "stop", stdin=text)
        assert (refused.code, refused.out) == (1, ""), refused
        assert len(refused.err.splitlines()) == 1
