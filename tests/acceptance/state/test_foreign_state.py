"""A state folder that came with a clone, a copy or a link runs nothing, whatever is typed there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from leadhand.local.bindings import require_bound
from tests.acceptance.project import Ended, Project
from tests.processes import kill
from tests.receiver import receiver
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


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


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
@pytest.mark.parametrize(
    "whose", ["the same user", pytest.param("another user", marks=pytest.mark.slow)]
)
def test_a_clone_of_a_committed_state_folder_runs_nothing(
    scene: Scene, projects: list[Project], tmp_path: Path, whose: str
) -> None:
    git(scene.origin.folder, "init", "-q")
    git(scene.origin.folder, "add", "-A", "-f")
    git(scene.origin.folder, "commit", "-q", "-m", "all of it")
    git(tmp_path, "clone", "-q", str(scene.origin.folder), "clone")
    env = {} if whose == "the same user" else {"XDG_STATE_HOME": str(tmp_path / "victim")}
    clone = Project(tmp_path / "clone", **env)
    projects.append(clone)
    commands = COMMANDS if whose == "another user" else SOME
    require_refusals(clone, scene, "git tracks it", commands)
    assert_refused(clone.leadhand("import"), "git rm -r --cached .leadhand")
    git(clone.folder, "rm", "-q", "-r", "--cached", ".leadhand")
    why = "it is a copy of" if whose == "the same user" else "it was not created by this user"
    require_refusals(clone, scene, why)


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_copied_folder_runs_nothing_in_the_original(
    scene: Scene, projects: list[Project], tmp_path: Path
) -> None:
    subprocess.run(["cp", "-a", scene.origin.folder, tmp_path / "copy"], check=True)
    copy = Project(tmp_path / "copy")
    projects.append(copy)
    sentence = f"it is a copy of '{scene.origin.folder}/.leadhand'"
    require_refusals(copy, scene, sentence)
    planted = copy.write("planted", f"#!/bin/sh\necho run >> {scene.marks}\n")
    planted.chmod(0o755)
    copy.write(".leadhand/redis/server.json", json.dumps({"path": str(planted), "kind": "Valkey"}))
    assert sentence in copy.leadhand("doctor").out
    assert scene.runs == 1


@pytest.mark.timeout(90)
@pytest.mark.slow
def test_a_linked_state_folder_is_not_followed(
    scene: Scene, projects: list[Project], tmp_path: Path
) -> None:
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/.leadhand").symlink_to(scene.origin.folder / ".leadhand")
    linked = Project(tmp_path / "linked")
    projects.append(linked)
    require_refusals(linked, scene, "it is a symbolic link")


@pytest.mark.timeout(60)
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.slow
def test_a_state_folder_of_another_user_is_refused(scene: Scene) -> None:
    os.chown(scene.origin.folder / ".leadhand", 65534, 65534)
    assert_refused(scene.origin.leadhand("ls"), "it belongs to user 65534")
    assert scene.runs == 1


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_moved_folder_keeps_its_sessions(
    scene: Scene, projects: list[Project], tmp_path: Path
) -> None:
    scene.origin.folder.rename(tmp_path / "moved")
    moved = Project(tmp_path / "moved")
    projects.append(moved)
    listed = moved.leadhand("ls", "--all", "--json").json()["items"]
    assert [session["id"] for session in listed] == [scene.session]


def make_old(project: Project) -> None:
    """Turn the state folder into one of the version before: its secrets inside, and no id."""
    home = project.folder / ".leadhand"
    binding = require_bound(home, project.env)
    (home / "secrets.json").write_text(
        json.dumps({"secret": binding.secret, "api_token": binding.api_token})
    )
    (home / "id").unlink()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_old_state_folder_is_imported_stopped_and_its_sessions_resume(scene: Scene) -> None:
    old = scene.origin
    make_old(old)
    require_refusals(old, scene, "`leadhand import`")
    imported = old.leadhand("import", timeout=60)
    assert imported.code == 0, imported.err
    assert f"{scene.session}  stopped  in {old.folder}" in imported.out
    assert not (old.folder / ".leadhand/secrets.json").exists()
    assert old.leadhand("ls", "--status", "stopped", "--json").json()["items"]
    assert scene.runs == 1
    scene.go.touch()
    assert old.leadhand("resume", scene.session).code == 0
    assert old.leadhand("wait", scene.session).code == 0
    assert scene.runs == 2
    assert "nothing was imported" in old.leadhand("import").out


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_copy_is_imported_stopped(scene: Scene, projects: list[Project], tmp_path: Path) -> None:
    shutil.copytree(scene.origin.folder, tmp_path / "copy", symlinks=True)
    copy = Project(tmp_path / "copy")
    projects.append(copy)
    imported = copy.leadhand("import", timeout=60)
    assert f"{scene.session}  stopped  in {scene.origin.folder}" in imported.out
    listed = copy.leadhand("ls", "--all", "--json").json()["items"]
    assert [one["status"] for one in listed] == ["stopped"]
    assert scene.runs == 1


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_killed_import_lets_nothing_run_until_it_is_finished(scene: Scene) -> None:
    old = scene.origin
    make_old(old)
    importing = old.begin("import")
    wait_until((old.folder / ".leadhand/id").exists, timeout=30)
    family = old.tree()
    importing.kill()
    importing.wait()
    kill(family)
    assert_refused(old.leadhand("ls"), "run `leadhand import` again")
    assert old.leadhand("import", timeout=60).code == 0
    assert scene.runs == 1


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_an_import_contacts_no_receiver_and_keeps_no_token(
    projects: list[Project], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with receiver() as at:
        at.statuses = [503]  # the delivery stays pending
        old = Project(tmp_path / "old", LEADHAND_WEBHOOK_HOSTS=at.host)
        projects.append(old)
        with old.up() as client:
            token = client.post("/v1/tokens", json={"name": "ci", "scopes": ["read"]}).json()
            ended = submit(client, old, "true", at.url)
            live = submit(client, old, f"while ! test -e {go}; do sleep 0.05; done", at.url)
            wait_until(lambda: at.received, timeout=15)
            as_token = {"Authorization": f"Bearer {token['token']}"}
            assert client.get("/v1/sessions", headers=as_token).status_code == 200
        kill(old.tree())
        at.statuses = [200]
        at.received.clear()
        make_old(old)
        imported = old.leadhand("import", timeout=60)
        assert imported.code == 0, imported.err
        assert at.received == []
        assert {ended, live} <= set(imported.out.split())
        assert "their webhooks and API tokens were removed" in imported.out
        with old.up() as client:
            assert client.get("/v1/sessions", headers=as_token).status_code == 401
            assert client.get("/v1/tokens").json()["items"] == []
            go.touch()
            assert old.leadhand("resume", live).code == 0
            assert old.leadhand("wait", live).code == 0
            time.sleep(3)  # a delivery is looked for every second
        assert at.received == []


def submit(client: httpx2.Client, project: Project, line: str, url: str) -> str:
    """Submit a session whose webhook rings at the address; its id."""
    document = {
        "kind": "loop", "cwd": str(project.folder), "task": "do it",
        "doer": {"command": line}, "checker": {"command": "true"}, "webhook": {"url": url},
    }  # fmt: skip
    answer = client.post("/v1/sessions", json=document)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])
