"""The real claude with the Stop hook of a guard: blocked, let go, given up, and inside a doer."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import real_agents
from tests.acceptance.project import BIN, Project
from tests.acceptance.real_agents.test_real_agents import is_of_ours
from tests.acceptance.real_agents.test_real_agents import pytestmark as with_real_agents
from tests.model_server import Asked, ModelServer, Reply, Say, Use, model_server
from tests.waiting import wait_until

pytestmark = [*with_real_agents, pytest.mark.slow]

GUARD = """
[guard.gates.build]
command = "test -f ok || { echo error: no ok; exit 1; }"
"""


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with model_server(lambda asked: Say("unscripted")) as server:
        yield server


@pytest.fixture
def project(make_project: Any, model: ModelServer, tmp_path: Path) -> Project:
    made: Project = make_project(
        PATH=os.pathsep.join((str(real_agents.BIN), str(BIN), os.environ["PATH"])),
        HOME=str(tmp_path),
        XDG_STATE_HOME="",  # a doer has HOME alone
        ANTHROPIC_BASE_URL=model.url,
        ANTHROPIC_API_KEY="sk-ant-of-the-test-0123456789",
        CLAUDE_CONFIG_DIR=str(tmp_path / "claude"),
        CLAUDE_CODE_MAX_RETRIES="0",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_TELEMETRY="1",
        LEADHAND_LEASE_S="6",
    )
    made.write("leadhand.toml", GUARD)
    installed = made.leadhand("hook", "install", "claude", "--yes", timeout=60)
    assert installed.code == 0, installed
    return made


def claude(project: Project) -> dict[str, Any]:
    process = project.start(["claude", "-p", "write it", "--output-format", "json",
                             "--allowedTools", "Bash"])  # fmt: skip
    ended = project.ended(process, timeout=120)
    assert ended.code == 0, ended
    found: dict[str, Any] = ended.json()
    return found


def guard_of(project: Project, agent_session: str) -> dict[str, Any]:
    (guard,) = project.leadhand("guard", "status", agent_session, "--json", timeout=60).json()[
        "items"
    ]
    found: dict[str, Any] = guard
    return found


def test_claude_is_blocked_counts_through_a_restart_and_stops_once_it_has_fixed_the_build(
    project: Project, model: ModelServer
) -> None:
    heard: list[str] = []

    def answer(asked: Asked) -> Reply:
        if not is_of_ours(asked):
            return Say("yes")
        heard.append(asked.prompt)
        if "attempt 1 of 5" in asked.prompt:
            restart(project)
        if "attempt 2 of 5" in asked.prompt and not asked.results:
            return Use("touch ok")
        return Say("done")

    model.answer = answer
    result = claude(project)
    assert result["result"] == "done"
    assert [one for one in heard if "error: no ok" in one]
    guard = guard_of(project, result["session_id"])
    assert (guard["stops"], guard["blocks"], guard["overridden"]) == (3, 2, 0)
    assert (guard["stage"], guard["retries"]) == ("complete", {})


def restart(project: Project) -> None:
    """End the services as a shutdown does; the next hook starts them again."""
    os.kill(int(project.run["pid"]), signal.SIGTERM)
    wait_until(lambda: not project.tree(), timeout=30)


def test_claude_that_never_fixes_the_build_is_given_up_before_it_overrides_the_guard(
    project: Project, model: ModelServer
) -> None:
    heard: list[str] = []

    def answer(asked: Asked) -> Reply:
        if is_of_ours(asked):
            heard.append(asked.prompt)
        return Say("done")

    model.answer = answer
    result = claude(project)
    assert result["result"] == "done"
    assert "Stage limit reached (5): the build still fails" in heard[-1]
    guard = guard_of(project, result["session_id"])
    assert (guard["stops"], guard["blocks"], guard["overridden"]) == (7, 6, 0)
    shown = project.leadhand("export", guard["guard"], timeout=60)
    entries = json.loads(shown.out)["ledger"]
    assert [one["verdict"] for one in entries] == ["retry"] * 6 + ["max_iterations"]
    assert entries[-1]["reason"]["code"] == "stop_limit"


def test_guard_inside_a_doer_shares_its_folder(project: Project, model: ModelServer) -> None:
    def answer(asked: Asked) -> Reply:
        if not is_of_ours(asked):
            return Say("yes")
        if "attempt 1 of 5" in asked.prompt and not asked.results:
            return Use("touch ok")
        return Say("done")

    model.answer = answer
    ended = project.leadhand(
        "spawn", "write it", "--agent", "claude", "--checker", "test -f ok", "--json", timeout=140
    )
    assert ended.code == 0, ended
    session = ended.json()["session_id"]
    guards = project.leadhand("guard", "status", "--json", timeout=60).json()["items"]
    assert [(one["inside"], one["blocks"], one["stage"]) for one in guards] == [
        (session, 1, "complete")
    ]
