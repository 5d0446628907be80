"""A plan that merges into a branch of the user: which branches are taken, and which left alone."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from pydantic import JsonValue, ValidationError

from app.compiler.plan import compile_plan
from app.core.outcomes import Outcome
from app.core.program import Action, Step
from leadhand.models.plans import PlanDocument
from tests.unit.workers.folders.repositories import git, make_repository, user_state
from workers.attempt.workspace_step import carry_out
from workers.registry.agents import AgentBook
from workers.task import BodyTask

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def survey(repo: Path, **given: JsonValue) -> Outcome:
    fields = {"request": "Do it", "unchecked": True, "cwd": str(repo), **given}
    step = compile_plan(PlanDocument.model_validate(fields)).body[0]
    assert isinstance(step, Step)
    task = BodyTask(
        session="5e551045", address="workspace", action=Action.WORKSPACE, iteration=1, attempt=1,
        inputs=dict(step.inputs), cwd=repo, spill=repo.parent / "spill", timeout_s=20.0, url="",
        mint=str, agents=AgentBook(agents={}), default_agent=None,
        worktrees=repo.parent / "worktrees",
    )  # fmt: skip
    return carry_out(task, threading.Event())


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = make_repository(tmp_path / "repo")
    git(repo, "branch", "develop")
    return repo


def test_work_is_merged_into_the_named_branch(repo: Path) -> None:
    before = user_state(repo)
    found = survey(repo, target="develop").value
    assert isinstance(found, dict)
    assert (found["target"], found["merge"]) == ("refs/heads/develop", True)
    assert found["home"] == git(repo, "rev-parse", "develop")
    assert git(repo, "branch", "--list", "leadhand/*") == ""
    assert user_state(repo) == before
    own = survey(repo).value
    assert isinstance(own, dict)
    assert own["target"] == "refs/heads/leadhand/plan-5e551045"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("main", "'main' is checked out in"),
        ("none", "there is no branch 'none'"),
        ("release", "'release' is protected"),
    ],
)
def test_branch_that_is_not_free_is_refused(repo: Path, target: str, why: str) -> None:
    git(repo, "branch", "release")
    git(repo, "config", "leadhand.protected", "release")
    found = survey(repo, target=target)
    assert found.word == "failed"
    assert found.reason is not None
    assert why in found.reason.text


@pytest.mark.parametrize("given", [{"merge": "none"}, {"workspace": "shared"}])
def test_target_without_merges_is_refused(repo: Path, given: dict[str, JsonValue]) -> None:
    with pytest.raises(ValidationError, match="only work in worktrees is merged"):
        survey(repo, target="develop", **given)
