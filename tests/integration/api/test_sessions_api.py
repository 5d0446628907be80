"""What can be asked of sessions beyond one at a time: filters, bulk, tags, exports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient

from api import create_app
from api.requests import session_answer
from app.engine import Engine
from app.settings import Settings
from leadhand.errors import LimitChanged, LimitUnknown, SessionChanged
from leadhand.models.views.session import BudgetLine
from tests.session_driving import (
    add_worker,
    all_events,
    claim,
    end,
    expire_worker,
    run_iteration,
)
from tests.silent_engine import loop, silent_engine

TOKEN = "the operator's own"
S = "/v1/sessions"
#: 2026-11-21T12:00:00Z
NOON_MS = 1_795_262_400_000


@pytest.fixture
def engine(store_url: str) -> Engine:
    engine = silent_engine(store_url, clock=lambda: NOON_MS, secret="s")
    for place in ("local", "there", "far"):
        add_worker(engine, f"at {place}", place=place)
    return engine


@pytest.fixture
def active(engine: Engine) -> str:
    return str(engine.submit.document(loop()).session)


@pytest.fixture
def ended(engine: Engine) -> str:
    session = str(engine.submit.document(loop()).session)
    end(engine, session)
    return session


@pytest.fixture
def three(engine: Engine, active: str, ended: str) -> tuple[str, str, str]:
    """Two active sessions and one that is completed."""
    return active, str(engine.submit.document(loop(task="another")).session), ended


@pytest.fixture
def client(engine: Engine) -> Iterator[FlaskClient]:
    app = create_app(Settings(api_token=TOKEN, secret="s"), engine)
    client = app.test_client()
    client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {TOKEN}"
    yield client
    app.fanout.close()


def statuses(engine: Engine) -> list[str]:
    return sorted(view.status for view in engine.queries.sessions().items)


def ids(client: FlaskClient, query: str) -> list[str]:
    answer = client.get(f"{S}?{query}")
    assert answer.status_code == 200, answer.text
    return sorted(item["id"] for item in json.loads(answer.data)["items"])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", 3),
        ("status=active", 2),
        ("status=active&status=completed", 3),
        ("status=failed", 0),
        ("kind=loop&name=loop", 3),
        ("kind=flow", 0),
        ("name=other", 0),
        ("label=nightly", 0),
        ("reason=aborted", 0),
        ("parent=deadbeef", 0),
        ("created_after=2026-11-21T12:00:00Z&created_before=2027-01-01T00:00:00.5%2B01:00", 3),
    ],
)
@pytest.mark.usefixtures("three")
def test_a_list_is_of_what_is_asked_for(client, query, found):
    assert len(ids(client, query)) == found


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=active&status=done", "status"),
        ("kind=loop&kind=loop", "kind"),
        ("kind=team", "kind"),
        ("name=", "name"),
        ("reason=boredom", "reason"),
        ("parent=me", "parent"),
        ("created_after=yesterday", "created_after"),
        ("created_after=1700000000", "created_after"),
        ("created_after=2026-11-21", "created_after"),
        ("created_after=2026-11-21T12:00:00", "created_after"),
        ("created_after=2026-02-30T12:00:00Z", "created_after"),
        ("limit=%2B5", "limit"),
        ("limit=1_0", "limit"),
        ("limit=5.0", "limit"),
        ("limit=%205", "limit"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_named(client, query, field):
    answer = client.get(f"{S}?{query}")
    assert (answer.status_code, answer.json["field"]) == (422, field)
    assert answer.json["hint"]


def bulk(client: FlaskClient, **body: Any) -> Any:
    return client.post(f"{S}/bulk", json=body)


def test_a_bulk_call_counts_first_unless_it_is_told_not_to(client, engine, three):
    active, other, _ = three
    wanted = {"status": ["active", "waiting"]}
    told = bulk(client, verb="abort", filter=wanted)
    assert (told.status_code, told.json["dry_run"], told.json["matched"]) == (200, True, 2)
    assert sorted(told.json["first"]) == sorted([active, other])
    assert statuses(engine) == ["active", "active", "completed"]
    told = bulk(client, verb="abort", filter=wanted, dry_run=False, reason="enough")
    assert (told.json["done"], told.json["refused"], told.json["next"]) == (2, 0, None)
    for session in (active, other):
        view = engine.queries.session(session)
        assert view.reason is not None
        assert (view.status, view.reason.code, view.reason.text) == ("aborted", "aborted", "enough")


@pytest.mark.usefixtures("three")
def test_a_bulk_delete_passes_over_what_runs_unless_it_is_forced(client):
    told = bulk(client, verb="delete", filter={"kind": "loop"}, dry_run=False).json
    assert (told["matched"], told["done"], told["refused"]) == (3, 1, 2)
    assert {refusal["status"] for refusal in told["refusals"]} == {"active"}
    told = bulk(client, verb="delete", filter={"kind": "loop"}, dry_run=False, force=True).json
    assert (told["done"], told["refused"]) == (2, 0)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"verb": "abort"}, "filter"),
        ({"verb": "abort", "filter": {}}, "filter"),
        ({"verb": "abort", "filter": {"kind": None}}, "filter"),
        ({"verb": "abort", "filter": {"kind": "loop", "status": []}}, "filter"),
        ({"verb": "exit", "filter": {"kind": "loop"}}, "verb"),
        ({"verb": "abort", "filter": {"kind": "loop"}, "dry_run": "no"}, "dry_run"),
        ({"verb": "abort", "filter": {"kind": "loop", "colour": "red"}}, "filter.colour"),
        ({"verb": "abort", "filter": {"status": "active"}}, "filter.status"),
        ({"verb": "abort", "filter": {"created_before": 17}}, "filter.created_before"),
        ({"filter": {"kind": "loop"}}, "verb"),
    ],
)
@pytest.mark.usefixtures("three")
def test_a_bulk_call_that_cannot_be_meant_names_the_field(client, engine, body, field):
    answer = bulk(client, **body)
    assert (answer.status_code, answer.json["field"]) == (422, field)
    assert statuses(engine) == ["active", "active", "completed"]


def test_what_a_reader_has_already_is_not_sent_again(client, engine, active):
    first = client.get(f"{S}/{active}")
    tag = first.headers["ETag"]
    assert tag.startswith('W/"active-')
    for given in (tag, f'W/"other-1", {tag}', tag.removeprefix("W/"), "*"):
        again = client.get(f"{S}/{active}", headers={"If-None-Match": given})
        assert (again.status_code, again.data, again.headers["ETag"]) == (304, b"", tag)
    end(engine, active, "stopped")
    again = client.get(f"{S}/{active}", headers={"If-None-Match": tag})
    assert (again.status_code, again.json["status"]) == (200, "stopped")


def test_the_time_that_a_session_has_used_is_no_news_of_it(client, engine, active):
    tags = []
    for used, steps in ((1.0, 3), (2.0, 3), (2.0, 4)):
        budget = {
            "wall_s": BudgetLine(used=used, limit=60),
            "steps": BudgetLine(used=steps, limit=9),
        }
        view = engine.queries.session(active).model_copy(update={"budget": budget})
        with client.application.test_request_context():
            tags.append(session_answer(view).headers["ETag"])
    assert tags[0] == tags[1] != tags[2]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/stop", {}),
        ("POST", "/abort", {}),
        ("POST", "/exit", {"reason": "enough"}),
        ("POST", "/rehome", {"place": "there"}),
        ("DELETE", "?force=true", None),
    ],
)
def test_what_has_changed_since_it_was_seen_is_not_touched(
    client, engine, active, method, path, body
):
    if method == "DELETE":
        claim(engine, active)  # else it ends at once, and is deleted
    before = all_events(engine, active)
    path, stale = f"{S}/{active}{path}", 'W/"stopped-1"'
    answer = client.open(path, method=method, json=body, headers={"If-Match": stale})
    assert (answer.status_code, answer.json["type"]) == (412, SessionChanged.kind.uri)
    assert answer.json["session_status"] == "active"
    assert client.get(f"{S}/{active}").json["status"] == "active"
    assert all_events(engine, active) == before
    tag = client.get(f"{S}/{active}").headers["ETag"]
    answer = client.open(path, method=method, json=body, headers={"If-Match": tag})
    assert answer.status_code == 202


@pytest.mark.parametrize("given", ["active", '"', 'W/"x"', '"a-1", "b-2"', ""])
def test_a_tag_that_is_none_of_ours_is_of_no_session_that_there_is(client, active, given):
    answer = client.post(f"{S}/{active}/stop", headers={"If-Match": given})
    assert (answer.status_code, answer.json["type"]) == (412, SessionChanged.kind.uri)


def test_any_tag_will_do_for_whoever_says_so(client, active):
    assert client.post(f"{S}/{active}/stop", headers={"If-Match": "*"}).status_code == 202


def test_a_look_that_shows_something_else_is_not_the_same_look(client, engine):
    far = engine.submit.document(loop(place="far")).session
    tag = client.get(f"{S}/{far}").headers["ETag"]
    expire_worker(engine, "at far", place="far")
    again = client.get(f"{S}/{far}", headers={"If-None-Match": tag})
    note = f"place 'far' has no worker; start one there, or: leadhand rehome {far} PLACE"
    assert (again.status_code, again.json["notes"]) == (200, [note])
    # Whoever means to change it need not have seen that.
    assert client.post(f"{S}/{far}/stop", headers={"If-Match": tag}).status_code == 202


L = "/v1/limits/agent/claude"


def test_a_limit_that_has_changed_since_it_was_seen_is_not_touched(client):
    first = client.put(L, json={"concurrency": 2})
    tag = first.headers["ETag"]
    assert client.get(L).headers["ETag"] == tag
    client.put(L, json={"per_minute": 30})
    for refused in (
        client.put(L, json={"concurrency": 9}, headers={"If-Match": tag}),
        client.delete(L, headers={"If-Match": tag}),
        client.delete(L, headers={"If-Match": '"none of ours", "2-x"'}),
    ):
        assert (refused.status_code, refused.json["type"]) == (412, LimitChanged.kind.uri)
    tag = client.get(L).headers["ETag"]
    changed = client.put(L, json={"concurrency": 9}, headers={"If-Match": f'"1-", {tag}'})
    assert (changed.status_code, changed.json["concurrency"]) == (200, 9)
    assert client.delete(L, headers={"If-Match": "*"}).status_code == 204
    assert client.get(L).json["type"] == LimitUnknown.kind.uri
    assert client.put(L, json={"concurrency": 1}, headers={"If-Match": "*"}).status_code == 412


def test_a_delete_says_whether_it_is_done_or_still_to_come(client, engine, active, ended):
    claim(engine, active)
    assert client.delete(f"{S}/{active}").status_code == 409
    assert client.delete(f"{S}/{active}?force=false").status_code == 409
    answer = client.delete(f"{S}/{active}?force=true")
    assert (answer.status_code, answer.json["status"]) == (202, "aborting")
    assert client.delete(f"{S}/{ended}?force=true").status_code == 204
    assert client.delete(f"{S}/{ended}?force=true").status_code == 404
    assert client.delete(f"{S}/{active}?force=1").status_code == 422


def test_bulk_is_no_session(client):
    for method in ("GET", "DELETE", "PUT"):
        answer = client.open(f"{S}/bulk", method=method)
        assert (answer.status_code, "POST" in answer.headers["Allow"]) == (405, True)
    assert client.get(f"{S}/bulk/events").status_code == 404


def test_an_export_holds_everything_or_the_ledger_line_by_line(client, engine, active):
    run_iteration(engine, active, "retry")
    whole = client.get(f"{S}/{active}/export")
    assert whole.headers["Content-Disposition"] == f'attachment; filename="{active}.json"'
    told = json.loads(whole.data)
    assert (told["format"], told["session"]["id"]) == ("leadhand.export/1", active)
    assert [entry["verdict"] for entry in told["ledger"]] == ["retry"]
    lines = client.get(f"{S}/{active}/export?part=ledger")
    assert lines.headers["Content-Type"] == "application/jsonl"
    assert [json.loads(line) for line in lines.text.splitlines()] == told["ledger"]
    assert client.get(f"{S}/{active}/export?part=none").status_code == 422
    assert client.get(f"{S}/deadbeef/export").status_code == 404
