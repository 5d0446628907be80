"""Limits and places from Python and from the command line, over a real API."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

import pytest

from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from leadhand.cli.render.session_text import session_lines
from leadhand.client.client import Client
from leadhand.errors import LimitChanged, LimitUnknown, RequestInvalid, SessionUnknown
from tests.http_world import TOKEN, Served, served
from tests.session_driving import add_worker

Leadhand = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def api(module_store_url) -> Iterator[Served]:
    with served(module_store_url) as running:
        add_worker(running.engine, "w1", place="there")
        yield running


@pytest.fixture
def client(api: Served) -> Iterator[Client]:
    with Client(api.url, TOKEN) as client:
        for limit in client.limits():
            client.remove_limit(limit.key)
        yield client


@pytest.fixture
def leadhand(api, client, capsys, monkeypatch) -> Leadhand:
    for name in [name for name in os.environ if name.startswith("LEADHAND_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LEADHAND_URL", api.url)
    monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)

    def leadhand(*arguments: str) -> tuple[int, str, str]:
        code = run(cli, arguments)
        return (code, *capsys.readouterr())

    return leadhand


def test_a_limit_is_set_listed_and_taken_away(client):
    assert client.limits() == []
    assert client.set_limit("agent:claude", concurrency=2).concurrency == 2
    assert client.set_limit("key:my deploys", per_minute=0.5).per_minute == 0.5
    assert [limit.key for limit in client.limits()] == ["agent:claude", "key:my deploys"]
    client.remove_limit("agent:claude")
    client.remove_limit("agent:claude")
    assert [limit.key for limit in client.limits()] == ["key:my deploys"]


def test_a_models_name_may_hold_a_slash(client):
    assert client.set_limit("model:org/one", concurrency=1).key == "model:org/one"
    client.remove_limit("model:org/one")
    assert client.limits() == []


@pytest.mark.parametrize("key", ["", "claude", "agent:", "colour:x", ":x"])
def test_a_key_that_is_none_is_named(client, key):
    with pytest.raises(RequestInvalid, match=r"use agent:NAME, model:NAME, queue:NAME or key:NAME"):
        client.set_limit(key, concurrency=1)


def test_a_limit_that_limits_nothing_is_refused(client):
    with pytest.raises(RequestInvalid, match="give concurrency, per_minute or both"):
        client.set_limit("agent:claude")


def test_of_two_who_change_a_limit_that_both_saw_the_second_hears_of_it(client):
    seen = client.set_limit("queue:agents", concurrency=4, per_minute=0.5)
    assert client.limit("queue:agents") == seen
    changed = client.set_limit("queue:agents", concurrency=2, seen=seen)
    with pytest.raises(LimitChanged, match="read it again"):
        client.set_limit("queue:agents", concurrency=8, seen=seen)
    with pytest.raises(LimitChanged):
        client.remove_limit("queue:agents", seen=seen)
    assert client.limit("queue:agents") == changed
    client.remove_limit("queue:agents", seen=changed)
    with pytest.raises(LimitUnknown, match="limit list"):
        client.limit("queue:agents")
    with pytest.raises(LimitChanged):
        client.set_limit("queue:agents", concurrency=1, seen=changed)


def test_the_command_line_sets_limits(leadhand):
    assert leadhand("limit", "list")[1] == "no limits; set one with `leadhand limit set`\n"
    both = ("limit", "set", "agent:claude", "--concurrency", "2", "--per-minute", "30")
    assert leadhand(*both)[:2] == (0, "agent:claude is limited to 2 at once and 30 a minute\n")
    one = ("limit", "set", "model:big", "--concurrency", "1")
    assert leadhand(*one)[1] == "model:big is limited to 1 at once\n"
    lines = leadhand("limit", "list")[1].splitlines()
    assert [line.split() for line in lines] == [
        ["KEY", "CONCURRENCY", "PER", "MINUTE"],
        ["agent:claude", "2", "30"],
        ["model:big", "1", "-"],
    ]  # fmt: skip
    assert len(json.loads(leadhand("limit", "list", "--json")[1])["items"]) == 2
    assert leadhand("limit", "rm", "model:big")[:2] == (0, "model:big is not limited\n")
    assert "model:big" not in leadhand("limit", "list")[1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("limit set agent:x", "give --concurrency, --per-minute or both"),
        ("limit set agent:x --concurrency 0", "0 is not in the range"),
        ("limit set agent:x --per-minute 0", "0.0 is not in the range"),
        ("limit set x --concurrency 1", "'x' is not the key of a limit"),
        ("limit rm x", "'x' is not the key of a limit"),
        ("limit frob", "No such command 'frob'"),
        ("rehome 1a2b3c4d", "Missing argument 'PLACE'"),
        ("rehome nothing there", "'nothing' is not a session id"),
        ("show \u00e9", "'\u00e9' is not a session id; an id is 8 hexadecimal digits"),
        ("show a\udcff", "'a\\udcff' is not a session id"),
        ("rehome 1a2b3c4d there", "session '1a2b3c4d' is not found"),
    ],
)
def test_bad_input_gets_one_sentence(leadhand, line, said):
    code, out, err = leadhand(*line.split())
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert said in err


def test_a_session_is_moved(api, client, leadhand):
    session = api.submit()
    assert client.rehome(session, "there").place == "there"
    assert leadhand("rehome", session, "there")[:2] == (
        0,
        f"session {session} is active at there\n",
    )
    with pytest.raises(SessionUnknown):
        client.rehome("1a2b3c4d", "there")
    with pytest.raises(RequestInvalid):
        client.rehome(session, "not a place")


def test_what_keeps_a_session_waiting_is_shown(api, client):
    note = "place 'b' has no worker; start one there, or: leadhand rehome 1a2b3c4d PLACE"
    view = client.session(api.submit()).model_copy(update={"notes": [note]})
    assert f"note     {note}" in list(session_lines(view, []))
