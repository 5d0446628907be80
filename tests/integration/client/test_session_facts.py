"""Exit reasons and polls of sessions, by the Python functions and `leadhand poll`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import pytest
from click.testing import CliRunner

from leadhand import load_exit_reason, poll, save_exit_reason
from leadhand.cli import cli
from leadhand.client.client import Client
from leadhand.errors import ControlRefused, LabelTaken, SessionUnknown
from tests.http_world import LOOP, TOKEN, Served, served
from tests.session_driving import claim, end

FIELDS = ["id", "status", "elapsed", "tool_calls", "activity"]


@pytest.fixture(scope="module")
def api(module_store_url) -> Iterator[Served]:
    with served(module_store_url) as running:
        yield running


@pytest.fixture
def client(api) -> Iterator[Client]:
    with Client(api.url, TOKEN) as client:
        yield client


@pytest.fixture(autouse=True)
def environment(api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADHAND_URL", api.url)
    monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)


def test_a_saved_exit_reason_ends_the_session_and_is_loaded(api, client):
    session = client.submit(LOOP).id
    assert load_exit_reason(session) is None
    save_exit_reason(session, "redesign it")
    assert client.session(session).status == "exited"
    assert load_exit_reason(session, client=client) == "redesign it"


def test_a_session_that_ended_otherwise_has_no_exit_reason(api, client):
    session = client.submit(LOOP).id
    end(api.engine, session)
    assert load_exit_reason(session) is None
    with pytest.raises(ControlRefused):
        save_exit_reason(session, "too late")
    with pytest.raises(SessionUnknown):
        load_exit_reason("00000000")


def test_an_empty_exit_reason_is_refused(client):
    session = client.submit(LOOP).id
    with pytest.raises(ValueError, match="reason is empty"):
        save_exit_reason(session, " ")
    assert client.session(session).status == "active"


def test_a_poll_shows_what_runs_and_never_the_result(api, client):
    session = client.submit(LOOP).id
    assert "no worker" in poll(session).activity
    claim(api.engine, session)
    running = poll(session)
    assert (running.id, running.status, running.tool_calls) == (session, "active", 0)
    assert running.activity == "agent loop~1[1]/do"
    assert 0 <= running.elapsed < 60
    ended = client.submit(LOOP).id
    end(api.engine, ended)
    found = poll(ended)
    assert (found.status, found.tool_calls, found.activity) == ("completed", 3, "done")
    assert list(asdict(found)) == FIELDS


def test_the_command_polls_one_session_or_several(api, client):
    one, other = client.submit(LOOP).id, client.submit(LOOP).id
    end(api.engine, other)
    ran = CliRunner().invoke(cli, ["poll", one, other], standalone_mode=False)
    assert ran.return_value == 0
    head, *rows = ran.output.splitlines()
    assert head.split("  ")[0] == "ID"
    assert [row.split()[:2] for row in rows] == [[one, "active"], [other, "completed"]]
    single = CliRunner().invoke(cli, ["poll", other, "--json"], standalone_mode=False)
    assert list(json.loads(single.output)) == FIELDS
    both = CliRunner().invoke(cli, ["poll", one, other, "--json"], standalone_mode=False)
    assert [found["id"] for found in json.loads(both.output)["sessions"]] == [one, other]


def test_a_label_of_an_active_session_is_refused_over_http_and_by_spawn(client):
    first = client.submit({**LOOP, "label": "nightly"}).id
    with pytest.raises(LabelTaken) as refused:
        client.submit({**LOOP, "label": "nightly"})
    problem = refused.value.problem
    assert (problem.status, problem.field) == (409, "label")
    assert f"session {first}" in problem.detail
    spawn = ["spawn", "t", "--label", "nightly", "--doer", "true", "--checker", "true"]
    ran = CliRunner().invoke(cli, [*spawn, "--detach"], standalone_mode=False)
    assert ran.exit_code != 0 or ran.return_value == 1
    client.abort(first, "enough")
    second = client.submit({**LOOP, "label": "nightly"}).id
    assert client.session(second).label == "nightly"
    client.abort(second, "enough")
