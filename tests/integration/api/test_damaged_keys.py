"""A key of a wrong type in Redis: lists leave out its session and name it, and `doctor` goes on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.serving import make_server

from api.application import create_app
from leadhand.cli.doctor import services
from leadhand.settings import ClientSettings
from tests.engine.test_fsck import Mess, each_damaged

BEARER = {"Authorization": "Bearer t0ken"}
DAMAGED = "urn:leadhand:problem:key-damaged"
LISTS = ("/v1/sessions", "/v1/sessions?status=active", "/v1/attention", "/v1/questions")
#: Other calls of `doctor` and `fsck`.
OTHERS = ("/v1/store", "/v1/workers", "/v1/agents", "/v1/fleet", "/v1/worktrees")


@pytest.fixture
def mess(store_url: str) -> Mess:
    return Mess(store_url)


def app_of(mess: Mess) -> Flask:
    settings = mess.engine.settings.model_copy(update={"api_token": "t0ken"})
    mess.engine.guard.check()
    return create_app(settings, mess.engine)


def ask(client: FlaskClient, path: str) -> Mapping[str, Any]:
    """The page; of a key that belongs to all sessions, only the refusal that names the fix."""
    reply = client.get(path, headers=BEARER)
    found: Mapping[str, Any] = reply.get_json()
    assert reply.status_code == 200 or found["type"] == DAMAGED
    return found


@pytest.mark.timeout(120)
def test_each_damaged_key_costs_a_list_one_session_at_most(mess: Mess, store_url: str) -> None:
    client = app_of(mess).test_client()
    sessions, named = {one["id"] for one in ask(client, "/v1/sessions")["items"]}, 0
    for key in each_damaged(mess, store_url):
        of_one_session = key.startswith(("lh:{", "lh:id:"))
        for path in (*LISTS, *OTHERS):
            assert "type" not in ask(client, path) or not of_one_session, (key, path)
        page = ask(client, "/v1/sessions")
        if of_one_session:
            shown = [one["id"] for one in page["items"]]
            assert {*shown, *page["damaged"]} == sessions, key
            assert [one for one in page["damaged"] if one not in key] == [], key
            assert len(page["damaged"]) <= 1, key
        if mess.child.id in key:
            tree = ask(client, f"/v1/sessions/{mess.parent.id}/tree")
            left = {mess.parent.id, mess.child.id} - {one["id"] for one in tree["items"]}
            assert tree["damaged"] == [*left], key
            assert left <= {mess.child.id}
            named += len(left)
    assert named >= 3, "among them its record"


@pytest.mark.parametrize("part", ["session", "leases"])
def test_doctor_names_a_damaged_key_and_runs_its_other_checks(
    mess: Mess, tmp_path: Path, part: str
) -> None:
    of_session = part == "session"
    key = mess.key(mess.runs, part) if of_session else mess.everywhere(part)
    server = make_server("127.0.0.1", 0, app_of(mess), threaded=True)
    mess.redis.delete(key)
    mess.redis.set(key, "x")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        found = list(services(ClientSettings(url=url, token="t0ken"), tmp_path))
    finally:
        server.shutdown()
        thread.join()
    failed = [one for one in found if (one.level, one.subject) == ("fail", "store")]
    assert [one.mend for one in failed] == ["leadhand fsck --repair moves it away"]
    assert (mess.runs.id in failed[0].text) == of_session
    assert {"api", "mcp"} <= {one.subject for one in found}
