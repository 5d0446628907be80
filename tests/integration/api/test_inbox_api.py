"""The inbox over REST: hints, messages to a parent, and the tokens that may read and report."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask.testing import FlaskClient
from pydantic import JsonValue
from werkzeug.test import TestResponse

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Program, Step
from app.core.records import Grant
from app.engine import Engine
from app.security.api_tokens import Scope
from app.security.signatures import BODY_SCOPES, Caller, mint
from app.sessions.callers import find_session_caller
from app.sessions.submit import About
from tests.silent_engine import OPERATOR, SECRET, loop

S = "/v1/sessions"
DO = "loop~1[1]/do"
WORK = Program(body=(Step(id="a", action=Action.AGENT),))


@pytest.fixture
def parent(engine: Engine) -> SessionRef:
    session = str(engine.submit.document(loop()).session)
    return SessionRef(session, session)


@pytest.fixture
def parents_grant(engine: Engine, parent: SessionRef) -> Grant:
    return claim(engine, parent, DO)


@pytest.fixture
def child(engine: Engine, parent: SessionRef, parents_grant: Grant) -> SessionRef:
    started_by: dict[str, JsonValue] = {
        "session": parent.id, "address": DO, "fence": parents_grant.fence,
        "base": engine.store.keys.base(parent),
    }  # fmt: skip
    made = engine.submit.program(WORK, About("loop", "c"), parent=started_by, root=parent.root)
    return SessionRef(made.session, parent.root)


def claim(engine: Engine, ref: SessionRef, address: str, nonce: str = "n") -> Grant:
    return engine.attempts.claim(ref, address, nonce=nonce, worker="w").grants[0]


def attempt_token(ref: SessionRef, grant: Grant, secret: str = SECRET) -> str:
    return mint(Caller(ref.id, grant.address, grant.fence, BODY_SCOPES), secret=secret)


def session_token(engine: Engine, ref: SessionRef, grant: Grant) -> str:
    attempt = Caller(ref.id, grant.address, grant.fence, BODY_SCOPES)
    return mint(find_session_caller(engine, attempt), secret=SECRET)


def ask(
    client: FlaskClient,
    method: str,
    path: str,
    body: object = None,
    *,
    token: str = OPERATOR,
    key: str | None = None,
) -> TestResponse:
    headers = {"Authorization": f"Bearer {token}"}
    if key is not None:
        headers["Idempotency-Key"] = key
    return client.open(f"{S}/{path}", method=method, headers=headers, json=body)


def told(answer: TestResponse) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.data)
    return found


def test_a_hint_is_listed_until_and_after_a_turn_has_read_it(engine, client, parent):
    made = ask(client, "POST", f"{parent.id}/hints", {"text": "look at the log"}, key="k")
    assert made.status_code == 201, made.data
    again = ask(client, "POST", f"{parent.id}/hints", {"text": "look at the log"}, key="k")
    assert told(again) == told(made)
    other = ask(client, "POST", f"{parent.id}/hints", {"text": "other"}, key="k")
    assert (other.status_code, told(other)["type"]) == (
        422, "urn:leadhand:problem:idempotency-conflict",
    )  # fmt: skip
    assert told(ask(client, "GET", f"{parent.id}/inbox?unread=true"))["items"] == [told(made)]
    work = engine.attempts.work(parent, claim(engine, parent, DO))
    engine.attempts.settle(work, Outcome(word="succeeded"), take=[], worker="w")
    assert told(ask(client, "GET", f"{parent.id}/inbox?unread=true"))["items"] == []
    (message,) = told(ask(client, "GET", f"{parent.id}/inbox"))["items"]
    assert (message["sender"], message["read_by"]) == ("operator", DO)


def test_an_inbox_is_read_in_pages(client, parent):
    for number in range(5):
        ask(client, "POST", f"{parent.id}/hints", {"text": str(number)})
    found, cursor = [], ""
    while True:
        page = told(ask(client, "GET", f"{parent.id}/inbox?limit=2{cursor}"))
        found += [one["text"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert found == list("01234")


@pytest.mark.parametrize("body", [{"text": " "}, {"text": "x" * 17_000}, {}, {"text": 1}])
def test_a_hint_that_cannot_be_used_is_refused_by_its_field(client, parent, body):
    answer = ask(client, "POST", f"{parent.id}/hints", body)
    assert (answer.status_code, told(answer)["field"]) == (422, "text")


def test_an_ended_session_refuses_a_hint(engine, client, parent):
    engine.control.apply(parent.id, "abort")
    answer = ask(client, "POST", f"{parent.id}/hints", {"text": "late"})
    assert (answer.status_code, told(answer)["type"]) == (
        409, "urn:leadhand:problem:message-refused",
    )  # fmt: skip
    assert ask(client, "POST", "00000a11/hints", {"text": "x"}).status_code == 404


def test_a_hint_needs_the_scope_control_and_reading_read(engine, client, parent):
    reader = engine.tokens.create("r", frozenset({Scope.READ})).token
    assert ask(client, "GET", f"{parent.id}/inbox", token=reader).status_code == 200
    hint = ask(client, "POST", f"{parent.id}/hints", {"text": "x"}, token=reader)
    assert hint.status_code == 403
    assert ask(client, "POST", f"{parent.id}/inbox/read", token=reader).status_code == 403


def test_a_childs_body_notifies_the_parent_with_all_that_it_says(engine, client, parent, child):
    token = attempt_token(child, claim(engine, child, "a"))
    body = {"status": "failure", "message": "it does not build", "pr_number": 12}
    made = ask(client, "POST", f"{child.id}/inbox", body, token=token, key="k")
    assert made.status_code == 201, made.data
    assert ask(client, "POST", f"{child.id}/inbox", body, token=token, key="k").data == made.data
    (message,) = told(ask(client, "GET", f"{parent.id}/inbox"))["items"]
    assert (message["sender"], message["text"]) == (child.id, "it does not build\n\npr_number: 12")
    assert message["escalates"] is True
    assert told(ask(client, "GET", parent.id))["needs_attention"]
    assert told(ask(client, "GET", f"{child.id}/inbox"))["items"] == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"status": "success", "message": " \n"}, "message"),
        ({"status": "done", "message": "x"}, "status"),
        ({"status": "success", "message": "x", "tests": "green"}, "tests"),
    ],
)
def test_a_blank_or_odd_message_to_a_parent_is_refused(client, child, body, field):
    answer = ask(client, "POST", f"{child.id}/inbox", body)
    assert (answer.status_code, told(answer)["field"]) == (422, field)


def test_a_session_without_parent_notifies_nobody(client, parent):
    answer = ask(client, "POST", f"{parent.id}/inbox", {"status": "success", "message": "x"})
    assert answer.status_code == 409
    assert "has no parent" in told(answer)["detail"]


def test_forged_foreign_old_and_replayed_tokens_are_refused(engine, client, parent, child):
    grant = claim(engine, child, "a")
    body = {"status": "success", "message": "x"}
    good = attempt_token(child, grant)
    tokens = {
        "forged": attempt_token(child, grant, secret="another secret"),
        "altered": f"{good[:-4]}0000",
        "of a fence to come": attempt_token(child, grant.model_copy(update={"fence": 9})),
        "of a session, forged": mint(Caller.of_session(child.id, 1), secret=SECRET),
    }
    for name, token in tokens.items():
        for method, path, sent in (
            ("GET", "inbox", None), ("POST", "inbox", body), ("POST", "inbox/read", None),
        ):  # fmt: skip
            answer = ask(client, method, f"{child.id}/{path}", sent, token=token)
            assert answer.status_code == 401, name
    own = session_token(engine, child, grant)
    for token in (good, own):
        foreign = ask(client, "GET", f"{parent.id}/inbox", token=token)
        assert foreign.status_code == 403, "of another session"
    engine.attempts.release(child, grant, why="drain")
    assert ask(client, "POST", f"{child.id}/inbox", body, token=good).status_code == 401
    claim(engine, child, "a", nonce="m")
    assert ask(client, "POST", f"{child.id}/inbox", body, token=good).status_code == 401
    assert told(ask(client, "GET", f"{parent.id}/inbox"))["items"] == []


def test_a_session_token_reports_reads_and_does_nothing_else(engine, client, parent, child):
    token = session_token(engine, child, claim(engine, child, "a"))
    assert ask(client, "GET", child.id, token=token).status_code == 200
    assert ask(client, "GET", f"{child.id}/inbox", token=token).status_code == 200
    assert ask(client, "POST", f"{child.id}/inbox/read", token=token).status_code == 200
    body = {"status": "success", "message": "x"}
    assert ask(client, "POST", f"{child.id}/inbox", body, token=token).status_code == 201
    exit_ = ask(client, "POST", f"{child.id}/exit", {"reason": "x"}, token=token)
    assert exit_.status_code == 403
    assert ask(client, "POST", f"{child.id}/hints", {"text": "x"}, token=token).status_code == 403


def test_a_session_token_is_suspended_by_a_stop_and_void_at_the_end(engine, client, child):
    grant = claim(engine, child, "a")
    token = session_token(engine, child, grant)
    engine.control.apply(child.id, "stop")
    assert ask(client, "GET", f"{child.id}/inbox", token=token).status_code == 401
    engine.attempts.release(child, grant, why="stop")
    engine.control.apply(child.id, "resume")
    assert ask(client, "GET", f"{child.id}/inbox", token=token).status_code == 200
    engine.control.apply(child.id, "abort")
    assert ask(client, "GET", f"{child.id}/inbox", token=token).status_code == 401
    engine.deletion.delete(child.id, force=True)
    assert ask(client, "GET", f"{child.id}/inbox", token=token).status_code == 401


def test_taken_messages_are_given_to_no_turn(engine, client, parent):
    ask(client, "POST", f"{parent.id}/hints", {"text": "one"})
    taken = ask(client, "POST", f"{parent.id}/inbox/read", key="k")
    assert [one["text"] for one in told(taken)["items"]] == ["one"]
    assert ask(client, "POST", f"{parent.id}/inbox/read", key="k").data == taken.data
    assert claim(engine, parent, DO).messages == ()


def test_the_events_and_the_export_have_the_messages(client, parent):
    ask(client, "POST", f"{parent.id}/hints", {"text": "one"})
    events = told(ask(client, "GET", f"{parent.id}/events?limit=500"))["items"]
    assert [one["fields"]["text"] for one in events if one["type"] == "inbox.message"] == ["one"]
    exported = told(ask(client, "GET", f"{parent.id}/export"))
    assert [one["text"] for one in exported["inbox"]] == ["one"]


def test_a_credential_in_a_hint_is_not_stored(client, parent):
    text = "use sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"
    made = told(ask(client, "POST", f"{parent.id}/hints", {"text": text}))
    assert "sk-ant" not in made["text"]
