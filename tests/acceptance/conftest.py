"""Gives each test a folder of its own, and takes the folder's services away at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.project import Project

MakeProject = Callable[..., Project]


@pytest.fixture
def make_project(tmp_path: Path) -> Iterator[MakeProject]:
    """Makes a folder whose commands get these variables too."""
    made: list[Project] = []

    def make(**env: str) -> Project:
        made.append(Project(tmp_path / f"a project {len(made)}", **env))
        return made[-1]

    yield make
    for project in made:
        project.close()


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project()
