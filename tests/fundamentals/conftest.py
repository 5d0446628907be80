"""Gives each lesson an empty folder, a client and a terminal. All lessons share their services."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from leadhand import Client
from leadhand.local.connect import ensure
from tests.acceptance.project import Ended, Guest, Project

#: Runs a command line in the lesson's folder.
Terminal = Callable[[str], Ended]
#: Writes a flow file, by its name.
WriteFlow = Callable[[str, Mapping[str, object]], None]

#: Agents without a model. `parrot` answers with its prompt; `flaky` fails when it runs first.
AGENTS = """
[agents.parrot]
command = ["cat"]

[agents.flaky]
command = ["sh", "-c", "test -e tried && echo well || { touch tried; exit 1; }"]
"""


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A folder whose first command has started Redis, the API and a worker."""
    folder = tmp_path_factory.mktemp("services")
    project = Project(
        folder,
        LEADHAND_CONCURRENCY="4",
        LEADHAND_LINGER="0.2",
        LEADHAND_AGENTS=str(folder / "agents.toml"),
        LEADHAND_FLOWS=str(folder / "flows"),
    )
    project.write("agents.toml", AGENTS)
    project.write("flows/README.md", "Lessons write their flows here.")
    try:
        with ensure(project.state, env=project.env):
            yield project
    finally:
        project.close()


@pytest.fixture
def client(services: Project) -> Iterator[Client]:
    """The Python client. In a folder of your own, `Client()` finds or starts the services."""
    with Client(services.run["url"], services.run["token"]) as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working folder of the lesson."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def terminal(services: Project, folder: Path) -> Iterator[Terminal]:
    """A terminal in the working folder."""
    guest = Guest(folder, services)
    yield lambda line: guest.ended(guest.start(["sh", "-c", line]))
    guest.close()


@pytest.fixture
def write_flow(services: Project) -> WriteFlow:
    """Writes `flows/NAME.json` beside the services, where `leadhand flow run NAME` finds it."""

    def write(name: str, flow: Mapping[str, object]) -> None:
        services.write(f"flows/{name}.json", json.dumps(flow))

    return write
