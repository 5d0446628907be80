"""Runs one body in a folder of the test's own."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from app.core.outcomes import Outcome
from app.core.program import Action
from workers.attempt.actions import BodyTask, run_body
from workers.registry.agent_entry import Agent
from workers.registry.agents import AgentBook

#: An agent that answers with what it was asked, and how.
PARROT = Agent(
    command=(sys.executable, "-c", "import sys; print('heard', repr(sys.stdin.read()), sys.argv)"),
    model_args=("--model", "{model}"),
)


def scripted(code: str, **given) -> Agent:
    return Agent(command=(sys.executable, "-c", code, "{prompt}"), **given)


@pytest.fixture
def body(tmp_path: Path):
    (tmp_path / "work").mkdir()

    def run(
        action: Action, inputs: dict[str, Any], *, cancel=None, agents=None, **given
    ) -> Outcome:
        task = {
            "session": "ab12cd34",
            "address": "green~1[2]/do",
            "action": action,
            "iteration": 2,
            "attempt": 1,
            "inputs": inputs,
            "cwd": tmp_path / "work",
            "spill": tmp_path / "spill",
            "timeout_s": 20.0,
            "url": "http://127.0.0.1:1",
            "mint": lambda: "lhc1.x.y",
            "agents": AgentBook(agents={"parrot": PARROT, **(agents or {})}),
            "default_agent": None,
            **given,
        }
        return run_body(BodyTask(**task), cancel or threading.Event())

    return run


def code_of(outcome: Outcome) -> str | None:
    return outcome.reason.code if outcome.reason else None


def do(doer: dict[str, str] | None, task: str = "Fix it.", **more) -> dict[str, Any]:
    return {"task": task, "doer": doer, **more}


def checking(checker: object, work: str = "It is done.") -> dict[str, Any]:
    return {"checker": checker, "task": "Fix it.", "work": work, "iteration": 2, "history": None}
