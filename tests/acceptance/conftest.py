"""Gives each test a folder; most use the services of one other folder, some have their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leadhand.local.connect import ensure
from tests.acceptance.project import Guest, Project

MakeProject = Callable[..., Project]


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A folder whose services stay up; they leave by themselves when this process is gone."""
    host = Project(tmp_path_factory.mktemp("host"), LEADHAND_LINGER="0.2")
    try:
        with ensure(host.state, env=host.env):
            yield host
    finally:
        host.close()


@pytest.fixture
def project(host: Project, tmp_path: Path) -> Iterator[Project]:
    """A folder that shares its services with those of other tests, and nothing else."""
    guest = Guest(tmp_path / "a project", host)
    yield guest
    guest.close()


@pytest.fixture
def make_project(tmp_path: Path) -> Iterator[MakeProject]:
    """Makes a folder whose own services and commands get these variables too."""
    made: list[Project] = []

    def make(**env: str) -> Project:
        made.append(Project(tmp_path / f"a project {len(made)}", **env))
        return made[-1]

    yield make
    for project in made:
        project.close()


@pytest.fixture
def alone(make_project: MakeProject) -> Project:
    """A folder with services of its own, which may be killed."""
    return make_project()
