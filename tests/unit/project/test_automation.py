"""Workflow and pre-commit hooks run targets of the Makefile; they have no checks of their own."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
TARGETS = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}


def own_commands(texts: Iterable[str]) -> list[str]:
    """Return the command lines that are neither `.ci/run` nor targets of the Makefile."""
    lines = [line.split() for text in texts for line in text.splitlines() if line.strip()]
    return [" ".join(line) for line in lines if line != [".ci/run"] and not _is_make(line)]


def _is_make(line: list[str]) -> bool:
    return line[0] == "make" and len(line) > 1 and {*line[1:]} <= TARGETS


@pytest.fixture
def jobs() -> list[dict[str, Any]]:
    """The jobs of every workflow."""
    files = sorted((ROOT / ".github" / "workflows").iterdir())
    assert files
    return [job for file in files for job in yaml.safe_load(file.read_text())["jobs"].values()]


@pytest.fixture
def hooks() -> list[dict[str, Any]]:
    """The hooks of pre-commit, none of which is fetched."""
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert {repo["repo"] for repo in repos} == {"local"}
    return [hook for repo in repos for hook in repo["hooks"]]


def test_workflows_run_make_targets_and_the_ci_script(jobs: list[dict[str, Any]]) -> None:
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert ".ci/run" in commands
    assert own_commands(commands) == []


def test_actions_are_pinned_to_a_version(jobs: list[dict[str, Any]]) -> None:
    actions = [step["uses"] for job in jobs for step in job["steps"] if "uses" in step]
    assert [one for one in actions if not re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", one)] == []


def test_the_workflow_runs_on_each_version_that_the_project_names(
    jobs: list[dict[str, Any]],
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {one.rpartition(" ")[2] for one in project["classifiers"] if ":: 3." in one}
    (versions,) = [job["strategy"]["matrix"]["python"] for job in jobs if "strategy" in job]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert named <= {*versions}


def test_hooks_run_make_targets(hooks: list[dict[str, Any]]) -> None:
    assert own_commands(hook["entry"] for hook in hooks) == []
    assert {hook["language"] for hook in hooks} == {"system"}
    assert {hook["pass_filenames"] for hook in hooks} == {False}


@pytest.mark.parametrize("command", ["ruff check .", "make no-target", "make", "make test && true"])
def test_another_command_would_be_noticed(command: str) -> None:
    assert own_commands(["make test\n.ci/run\n", command]) == [command]
