"""The real claude and codex call Leadhand's tools over MCP from a plan's task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import real_agents
from tests.acceptance.project import BIN, Project
from tests.acceptance.real_agents.test_real_agents import CODEX, is_of_ours, pytestmark
from tests.model_server import Asked, Call, ModelServer, Reply, Say, model_server

__all__ = ["pytestmark"]

TASKS = """
[[tasks]]
id = "one"
title = "Write one"
"""


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with model_server(lambda asked: Say("unscripted")) as server:
        yield server


@pytest.fixture
def project(make_project, model: ModelServer, tmp_path: Path) -> Project:
    made: Project = make_project(
        PATH=os.pathsep.join((str(real_agents.BIN), str(BIN), os.environ["PATH"])),
        HOME=str(tmp_path),
        ANTHROPIC_BASE_URL=model.url,
        ANTHROPIC_API_KEY="sk-ant-of-the-test-0123456789",
        CLAUDE_CONFIG_DIR=str(tmp_path / "claude"),
        CLAUDE_CODE_MAX_RETRIES="0",
        # How long it waits for the server at its start: the machine may be busy.
        MCP_CONNECT_TIMEOUT_MS="60000",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_TELEMETRY="1",
        CODEX_HOME=str(tmp_path / "codex"),
        OPENAI_API_KEY="sk-of-the-test-0123456789",
        LEADHAND_LEASE_S="6",
        LEADHAND_CONCURRENCY="3",
    )
    (tmp_path / "codex").mkdir()
    (tmp_path / "codex" / "config.toml").write_text(CODEX.format(url=model.url))
    made.write("tasks.toml", TASKS)
    return made


@pytest.mark.parametrize("agent", ["claude", "codex"])
@pytest.mark.slow
def test_an_agent_reports_about_its_task_of_a_plan(
    project: Project, model: ModelServer, agent: str
) -> None:
    heard: list[str] = []
    seen: list[tuple[str, ...]] = []

    def answer(asked: Asked) -> Reply:
        if not is_of_ours(asked):
            return Say("yes")
        seen.append(asked.tools)
        heard.extend(asked.results)
        if asked.results:
            return Say("It is reported.")
        given = {"status": "done", "notes": "the parser is in src"}
        return Call("leadhand", "report_status", given)

    model.answer = answer
    ended = project.leadhand(
        "plan", "new", "Report", "--no-refine", "--tasks", "tasks.toml", "--agent", agent,
        "--checker", "ok: true", "--json", timeout=120,
    )  # fmt: skip
    assert ended.code == 0, (ended, heard, seen)
    plan = project.leadhand("plan", "show", ended.json()["session_id"], "--json", timeout=60).json()
    (task,) = plan["tasks"]
    assert (task["notes"], task["status"], task["verified"]) == (
        "the parser is in src", "completed", True,
    ), (heard, seen)  # fmt: skip
    assert any("repeated" in one for one in heard), heard
