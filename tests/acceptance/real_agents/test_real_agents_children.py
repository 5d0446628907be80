"""The real claude as a doer that starts a child session and reads its result.

Not codex: its shell has no network and no variables with TOKEN in their name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import real_agents
from tests.acceptance.project import BIN, Project
from tests.acceptance.real_agents.test_real_agents import is_of_ours
from tests.acceptance.real_agents.test_real_agents import pytestmark as with_real_agents
from tests.model_server import Asked, ModelServer, Reply, Say, Use, model_server

pytestmark = [*with_real_agents, pytest.mark.slow]

SPAWN = "leadhand spawn 'write it' --doer 'echo hi > made.txt' --checker 'test -f made.txt' --json"


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
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_TELEMETRY="1",
        LEADHAND_LEASE_S="6",
        LEADHAND_CONCURRENCY="3",
    )
    return made


def test_claude_starts_a_child_by_its_shell_and_reads_the_result(
    project: Project, model: ModelServer
) -> None:
    heard: list[str] = []

    def answer(asked: Asked) -> Reply:
        if not is_of_ours(asked):
            return Say("yes")
        heard.extend(asked.results)
        return Say("The child has done it.") if asked.results else Use(SPAWN)

    model.answer = answer
    ended = project.leadhand(
        "spawn", "have it written", "--agent", "claude", "--checker", "cat made.txt", "--json",
        timeout=120,
    )  # fmt: skip
    assert ended.code == 0, (ended, heard)
    session = ended.json()["session_id"]
    assert any('"verdict":"accept"' in text.replace(" ", "") for text in heard), heard
    tree = project.leadhand("tree", session, "--json", timeout=60).json()
    kid = tree["items"][1]
    assert (kid["parent"], kid["title"], kid["status"]) == (session, "write it", "completed")
    assert project.lines("made.txt") == ["hi"]
