"""A state folder that came with a clone, a copy or a link runs nothing, whatever is typed there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.project import Ended, Project
from tests.processes import kill
from tests.waiting import wait_until

pytestmark = pytest.mark.acceptance

#: Each would start the services of the folder.
COMMANDS = (
    "ls", "show {id}", "wait {id}", "resume {id}", "top", "agents", "tools", "fsck", "up",
    "spawn again --doer true --checker true",
)  # fmt: skip
SOME = ("ls", "up")
#: Leaves a line for each start, then waits for a file.
DOER = "echo run >> {marks}; while ! test -e {go}; do sleep 0.05; done"


class Scene:
    """A project with a session at work whose services were killed."""

    def __init__(self, origin: Project, folder: Path) -> None:
        self.origin = origin
        self.marks = folder / "marks"
        self.go = folder / "go"
        self.session = origin.detached(
            "--doer", DOER.format(marks=self.marks, go=self.go), "--checker", "true"
        )
        wait_until(lambda: self.runs, timeout=15)
        kill(origin.tree())

    @property
    def runs(self) -> int:
        return len(self.marks.read_text().splitlines()) if self.marks.exists() else 0


@pytest.fixture
def scene(alone: Project, tmp_path: Path) -> Scene:
    return Scene(alone, tmp_path)


@pytest.fixture
def projects() -> Iterator[list[Project]]:
    """Projects whose processes are ended with the test."""
    begun: list[Project] = []
    yield begun
    for project in begun:
        project.close()


def require_refusals(
    project: Project, scene: Scene, sentence: str, commands: tuple[str, ...] = SOME
) -> None:
    """Each command says the sentence, starts nothing and runs nothing."""
    for command in commands:
        ended = project.leadhand(*command.format(id=scene.session).split())
        assert_refused(ended, sentence)
    assert not project.tree()
    assert scene.runs == 1


def assert_refused(ended: Ended, sentence: str) -> None:
    assert ended.code == 1, ended
    [line] = ended.err.splitlines()
    assert sentence in line
    assert ended.out == ""


@pytest.mark.timeout(120)
def test_a_state_folder_that_came_with_a_clone_runs_nothing(
    scene: Scene, projects: list[Project], tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "init", "-q", str(clone)], check=True)
    subprocess.run(["cp", "-a", str(scene.origin.state), str(clone / "state")], check=True)
    cloned = Project(clone, LEADHAND_HOME=str(clone / "state"))
    projects.append(cloned)
    require_refusals(cloned, scene, "it is in the git work tree", COMMANDS)
    unpacked = tmp_path / "unpacked"
    subprocess.run(["cp", "-a", str(scene.origin.state), str(unpacked)], check=True)
    unpacked.chmod(0o755)
    opened = Project(tmp_path / "work", LEADHAND_HOME=str(unpacked))
    projects.append(opened)
    require_refusals(opened, scene, "others may open it")


@pytest.mark.timeout(90)
@pytest.mark.slow
def test_a_linked_state_folder_is_not_followed(
    scene: Scene, projects: list[Project], tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(scene.origin.state)
    linked = Project(tmp_path / "linked", LEADHAND_HOME=str(tmp_path / "link"))
    projects.append(linked)
    require_refusals(linked, scene, "it is a symbolic link")


@pytest.mark.timeout(60)
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.slow
def test_a_state_folder_of_another_user_is_refused(scene: Scene) -> None:
    os.chown(scene.origin.state, 65534, 65534)
    assert_refused(scene.origin.leadhand("ls"), "it belongs to user 65534")
    assert scene.runs == 1


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_moved_folder_keeps_its_sessions(
    scene: Scene, projects: list[Project], tmp_path: Path
) -> None:
    scene.origin.state.rename(tmp_path / "moved")
    moved = Project(scene.origin.folder, LEADHAND_HOME=str(tmp_path / "moved"))
    projects.append(moved)
    listed = moved.leadhand("ls", "--all", "--json").json()["items"]
    assert [session["id"] for session in listed] == [scene.session]
