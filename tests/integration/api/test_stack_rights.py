"""A body uses the stacks of its session's folder, and those that its session made; no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app import stacks
from app.engine import Engine
from app.security.signatures import BODY_SCOPES, Caller, mint
from app.stacks import StackCall
from leadhand.contract.stacks import StartWorkflow
from leadhand.errors import StackRefused
from leadhand.models.stacks import folder_stack
from tests.session_driving import add_worker, claim
from tests.silent_engine import OPERATOR, SECRET, loop

HOST = "buil'der"
PLACE = "buil-der"


class Body:
    """The running body of a session, in a folder."""

    def __init__(self, client: FlaskClient, engine: Engine, folder: Path) -> None:
        self.client, self.folder = client, folder
        self.session = engine.submit.document(loop(cwd=str(folder), place="local")).session
        grant = claim(engine, self.session)
        caller = Caller(self.session, grant.address, grant.fence, BODY_SCOPES)
        self.token = mint(caller, secret=SECRET)

    def ask(self, method: str, path: str, body: object = None) -> TestResponse:
        return ask(self.client, self.token, method, f"/v1/stacks/{path}", body)

    def start(self, stack: str, **more: object) -> int:
        return self.ask("POST", f"{stack}/workflows", {**NEW, **more}).status_code


NEW = {"job_name": "web", "workflow_name": "release", "first_step_id": "build"}
READS = ("", "/workflows", "/workflows/active", "/workflows/active/outputs")


def ask(
    client: FlaskClient, token: str, method: str, path: str, body: object = None
) -> TestResponse:
    return client.open(path, method=method, headers={"Authorization": f"Bearer {token}"}, json=body)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("mine/sub", "other"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "mine", tmp_path / "other"


@pytest.fixture
def body(client: FlaskClient, engine: Engine, folders: tuple[Path, Path]) -> Body:
    add_worker(engine, "w1", host=HOST)
    return Body(client, engine, folders[0])


def used(client: FlaskClient, stack: str, **more: Any) -> str:
    """A stack that a person uses; the id of a workflow session on it."""
    made = ask(client, OPERATOR, "POST", f"/v1/stacks/{stack}/workflows", {**NEW, **more})
    assert made.status_code == 201, made.text
    return str(made.json and made.json["workflow"]["session_id"])


def test_stacks_of_other_folders_are_neither_read_nor_changed(
    client: FlaskClient, body: Body, folders: tuple[Path, Path]
) -> None:
    other = folder_stack(PLACE, str(folders[1]))
    workflow = used(client, other, folder=str(folders[1]), place=PLACE)
    elsewhere = folder_stack("another-host", str(folders[0]))
    used(client, elsewhere, folder=str(folders[0]), place="another-host")
    used(client, "release")
    for stack in (other, elsewhere, "release", folder_stack(PLACE, str(folders[0].parent))):
        for path in READS:
            assert body.ask("GET", f"{stack}{path}").status_code == 403, (stack, path)
        for verb, given in (
            ("step-start", {"step_id": "x"}),
            ("advance", {"step_id": "x", "entry_index": 1}),
            ("complete", {}),
            ("abort", {"reason": "mine"}),
        ):
            answer = body.ask("POST", f"{stack}/workflows/active/{verb}", given)
            assert answer.status_code == 403, (stack, verb)
        assert body.ask("POST", f"{stack}/workflows/{workflow}/load", {}).status_code == 403
        for folder in (folders[0], folders[1], f"{folders[0]}/../other"):
            assert body.start(stack, folder=str(folder), place=PLACE) == 403, (stack, folder)


def test_stacks_of_the_sessions_folder_and_of_those_in_it_are_used(
    client: FlaskClient, body: Body, folders: tuple[Path, Path]
) -> None:
    mine = folder_stack(PLACE, str(folders[0]))
    assert body.ask("GET", mine).status_code == 200, "also an unused one"
    used(client, mine, folder=str(folders[0]), place=PLACE)
    assert body.start(mine) == 201
    for path in READS:
        assert body.ask("GET", f"{mine}{path}").status_code == 200, path
    sub = folders[0] / "sub"
    below = folder_stack(PLACE, str(sub))
    assert body.start(below, folder=str(sub), place=PLACE) == 201
    assert body.ask("GET", f"{below}/workflows/active").status_code == 200


def test_stack_that_a_session_made_is_its_own_until_others_use_it(
    client: FlaskClient, engine: Engine, body: Body, folders: tuple[Path, Path]
) -> None:
    another = Body(client, engine, folders[1])
    assert body.ask("GET", "notes").status_code == 200
    assert body.start("notes") == 201
    assert (
        body.ask("POST", "notes/workflows/active/step-start", {"step_id": "a"}).status_code == 200
    )
    assert body.ask("GET", "notes/workflows/active").status_code == 200
    assert another.ask("GET", "notes").status_code == 403
    assert another.start("notes") == 403
    used(client, "notes")
    assert body.ask("GET", "notes").status_code == 403, "what a person adds is not the body's"


def test_stack_that_another_made_meanwhile_is_not_changed(engine: Engine) -> None:
    new = StartWorkflow(job_name="job", workflow_name="flow", goal="go", first_step_id="plan")
    stacks.start(engine, StackCall("raced", by="ann"), new)
    for owner in ("0000000a", "0000000b"):
        call = StackCall("raced", "0000000c", by="body", owner=owner)
        with pytest.raises(StackRefused, match="is not of session"):
            stacks.start(engine, call, new)
        with pytest.raises(StackRefused, match="is not of session"):
            stacks.delete(engine, call)  # says nothing about the workflow sessions on it


def test_session_without_a_folder_has_stacks_of_its_own_only(
    client: FlaskClient, engine: Engine, folders: tuple[Path, Path]
) -> None:
    session = engine.submit.document(loop()).session
    grant = claim(engine, session)
    token = mint(Caller(session, grant.address, grant.fence, BODY_SCOPES), secret=SECRET)
    stack = folder_stack(PLACE, str(folders[0]))
    made = {**NEW, "folder": str(folders[0]), "place": PLACE}
    path = f"/v1/stacks/{stack}/workflows"
    assert ask(client, token, "POST", path, made).status_code == 403
    assert ask(client, token, "POST", "/v1/stacks/own/workflows", NEW).status_code == 201
