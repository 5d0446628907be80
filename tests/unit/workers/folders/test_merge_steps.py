"""The steps of a merge, as the body of a worker runs them."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from pydantic import JsonValue

from app.core.outcomes import Outcome
from app.core.program import Action
from tests.unit.workers.folders.test_merging import Case
from workers.attempt import merge_step
from workers.registry.agents import AgentBook
from workers.task import BodyTask

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def run(case: Case, task: str, do: str, **inputs: JsonValue) -> Outcome:
    body = BodyTask(
        session="ab12cd34",
        address=f"merge~1/attempt~1/{do}",
        action=Action.WORKSPACE,
        iteration=1,
        attempt=1,
        inputs={**case.wanted(task).model_dump(), "do": do, **inputs},
        cwd=case.path,
        spill=case.path.parent / "spill",
        timeout_s=60,
        url="http://127.0.0.1:1",
        mint=lambda: "lhc1.x.y",
        agents=AgentBook(agents={}),
        default_agent=None,
        worktrees=case.path.parents[2],
    )
    outcome = merge_step.carry_out(body, threading.Event(), float("inf"))
    assert outcome is not None
    return outcome


def field(outcome: Outcome, name: str) -> JsonValue:
    assert isinstance(outcome.value, dict)
    return outcome.value[name]


def test_overtaken_merge_is_tried_again_without_a_resolver(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.commit("a", one="a\n")
    case.commit("b", two="b\n")
    begun = field(run(case, "a", "rebase"), "rebased")
    case.merge("b")
    commit = run(case, "a", "commit", begun=begun)
    assert "used by another session" in commit.text
    assert (field(commit, "checks"), field(commit, "conflict")) == (None, None)
    land = run(case, "a", "land", done=field(commit, "rebased"))
    assert (land.verdict, field(land, "feedback")) == ("retry", None)
    assert "used by another session" in land.text
    again = run(case, "a", "rebase", feedback=field(land, "feedback"))
    assert field(again, "ask") is None
