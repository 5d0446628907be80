"""`leadhand hint`, `inbox`, `notify` and `hook` against an API of their own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Program, Step
from app.security.signatures import BODY_SCOPES, Caller, mint
from app.sessions.callers import find_session_caller
from app.sessions.submit import About
from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from leadhand.client.client import Client
from tests.http_world import SECRET, TOKEN, Served, served
from tests.waiting import wait_until

PROGRAM = (sys.executable, "-P", "-c", "from leadhand.cli import main; main()")
WORK = Program(body=(Step(id="a", action=Action.AGENT),))
DO = "loop~1[1]/do"


class Shown(NamedTuple):
    code: int
    out: str
    err: str


Leadhand = Callable[..., Shown]


@pytest.fixture(scope="module")
def api(module_store_url: str) -> Iterator[Served]:
    with served(module_store_url) as running:
        yield running


@pytest.fixture
def leadhand(api: Served, monkeypatch, capsys) -> Leadhand:
    monkeypatch.setenv("LEADHAND_URL", api.url)
    monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)
    monkeypatch.delenv("LEADHAND_SESSION", raising=False)

    def call(*arguments: str, stdin: str = "") -> Shown:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = run(cli, arguments)
        return Shown(code, *capsys.readouterr())

    return call


def child_of(api: Served, parent: str) -> tuple[SessionRef, str]:
    """A child session of a running doer, and the token of its own running attempt."""
    ref = SessionRef(parent, parent)
    fence = api.engine.attempts.claim(ref, DO, nonce="p", worker="w").grants[0].fence
    base = api.engine.store.keys.base(ref)
    started_by: dict[str, JsonValue] = {
        "session": parent,
        "address": DO,
        "fence": fence,
        "base": base,
    }
    made = api.engine.submit.program(WORK, About("loop", "c"), parent=started_by, root=parent)
    child = SessionRef(made.session, parent)
    grant = api.engine.attempts.claim(child, "a", nonce="c", worker="w").grants[0]
    return child, mint(Caller(child.id, "a", grant.fence, BODY_SCOPES), secret=SECRET)


def test_a_hint_is_in_the_inbox_until_its_turn_has_read_it(api, leadhand):
    session = api.submit()
    assert leadhand("inbox", session).out == "no messages\n"
    sent = leadhand("hint", session, "look at the log")
    assert sent == (0, f"message 1 is in the inbox of session {session}\n", "")
    assert leadhand("hint", session, "-", stdin="of standard input\n").code == 0
    shown = leadhand("inbox", session).out
    assert shown.startswith("1. hint from operator  ")
    assert "  unread\n    look at the log\n2. hint from operator" in shown
    ref = SessionRef(session, session)
    grant = api.engine.attempts.claim(ref, DO, nonce="n", worker="w").grants[0]
    work = api.engine.attempts.work(ref, grant)
    api.engine.attempts.settle(work, Outcome(word="succeeded"), take=[], worker="w")
    assert f"read by {DO}" in leadhand("inbox", session).out
    assert "] message 1, hint from operator: look at the log\n" in leadhand("logs", session).out
    assert leadhand("inbox", session, "--unread").out == "no unread messages\n"


def test_a_hint_that_is_blank_or_comes_late_is_refused_in_one_sentence(api, leadhand):
    session = api.submit()
    blank = leadhand("hint", session, " ")
    assert blank.code == 1
    assert "TEXT: it is blank; say what the reader has to know" in blank.err
    with Client(api.url, TOKEN) as client:
        client.abort(session)
    late = leadhand("hint", session, "late")
    assert late.code == 1
    assert "does not accept this message: it is aborted" in late.err
    assert len(late.err.splitlines()) == 1


def test_a_body_notifies_the_parent_and_a_failure_shows_in_the_list(api, leadhand, monkeypatch):
    parent = api.submit()
    child, token = child_of(api, parent)
    monkeypatch.setenv("LEADHAND_SESSION", child.id)
    monkeypatch.setenv("LEADHAND_TOKEN", token)
    assert leadhand("notify", "half of it works", "--pr", "7").code == 0
    told = leadhand("notify", "it does not build", "--failure")
    assert told == (0, "message 2 is in the inbox of the parent session\n", "")
    assert leadhand("inbox").out == "no messages\n", "its own inbox"
    assert leadhand("notify", " ").code == 1
    monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)
    lines = [json.loads(line) for line in leadhand("inbox", parent, "--json").out.splitlines()]
    assert [(one["sender"], one["text"]) for one in lines] == [
        (child.id, "half of it works\n\npr_number: 7"), (child.id, "it does not build"),
    ]  # fmt: skip
    assert "attention  1 unread message of child sessions" in leadhand("show", parent).out
    (row,) = [line for line in leadhand("ls").out.splitlines() if line.startswith(parent)]
    assert "(needs attention)" in row
    assert "failure" in leadhand("inbox", parent, "--take").out
    assert "attention" not in leadhand("show", parent).out


def test_without_a_session_the_commands_say_which_to_name(leadhand):
    for command in (("inbox",), ("notify", "x")):
        shown = leadhand(*command)
        assert (shown.code, len(shown.err.splitlines())) == (1, 1)
        assert "LEADHAND_SESSION not set" in shown.err


def test_a_prompt_hook_adds_each_message_to_the_context_once(api, leadhand):
    session = api.submit()
    leadhand("hint", session, "look at the log")
    event = json.dumps({"hook_event_name": "UserPromptSubmit", "prompt": "go on"})
    shown = leadhand("hook", "prompt", "--session", session, stdin=event)
    output = json.loads(shown.out)["hookSpecificOutput"]
    assert output["hookEventName"] == "UserPromptSubmit"
    assert "Message 1: hint from operator" in output["additionalContext"]
    assert output["additionalContext"].endswith("look at the log")
    assert leadhand("hook", "prompt", "--session", session, stdin=event) == (0, "", "")


def test_a_notification_hook_tells_the_user_and_leaves_the_messages_unread(api, leadhand):
    session = api.submit()
    assert leadhand("hook", "notification", "--session", session, stdin="{}") == (0, "", "")
    leadhand("hint", session, "look at the log\nsecond line")
    shown = leadhand("hook", "notification", "--session", session, stdin="{}")
    text = json.loads(shown.out)["systemMessage"]
    assert text.startswith(f"1 unread message of session {session}; the newest is of operator:")
    assert text.endswith("look at the log")
    assert leadhand("inbox", session, "--unread").out.startswith("1. ")


def test_a_hook_without_a_session_says_nothing_and_one_with_odd_input_says_so(leadhand):
    assert leadhand("hook", "prompt", stdin="{}") == (0, "", "")
    odd = leadhand("hook", "prompt", stdin="no JSON")
    assert (odd.code, odd.out) == (1, "")
    assert "standard input is not the JSON object of a hook" in odd.err
    other = leadhand("hook", "prompt", stdin='{"hook_event_name": "Stop"}')
    assert "hook_event_name is 'Stop'" in other.err


def test_a_hook_outlives_the_attempt_with_the_token_of_the_session(api, leadhand, monkeypatch):
    session = api.submit()
    ref = SessionRef(session, session)
    grant = api.engine.attempts.claim(ref, DO, nonce="n", worker="w").grants[0]
    attempt = Caller(session, DO, grant.fence, BODY_SCOPES)
    outlives = mint(find_session_caller(api.engine, attempt), secret=SECRET)
    work = api.engine.attempts.work(ref, grant)
    api.engine.attempts.settle(work, Outcome(word="succeeded"), take=[], worker="w")
    leadhand("hint", session, "look at the log")
    monkeypatch.setenv("LEADHAND_SESSION", session)
    monkeypatch.setenv("LEADHAND_TOKEN", mint(attempt, secret=SECRET))
    assert leadhand("hook", "prompt", stdin="{}").code == 1, "its attempt has ended"
    monkeypatch.setenv("LEADHAND_SESSION_TOKEN", outlives)
    assert "look at the log" in leadhand("hook", "prompt", stdin="{}").out


@contextmanager
def following(api: Served, session: str, into: Path) -> Iterator[subprocess.Popen[bytes]]:
    env = {n: v for n, v in os.environ.items() if not n.startswith("LEADHAND_")}
    env |= {"LEADHAND_URL": api.url, "LEADHAND_TOKEN": TOKEN}
    with into.open("wb") as out:
        command = [*PROGRAM, "inbox", session, "--follow"]
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env, cwd=into.parent)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_following_shows_messages_until_the_session_ends(api, leadhand, tmp_path):
    session = api.submit()
    out = tmp_path / "out"
    with following(api, session, out) as process:
        wait_until(lambda: "no messages yet" in out.read_text(), timeout=60)
        leadhand("hint", session, "one")
        wait_until(lambda: "one" in out.read_text(), timeout=60)
        leadhand("hint", session, "two")
        wait_until(lambda: "two" in out.read_text(), timeout=60)
        with Client(api.url, TOKEN) as client:
            client.abort(session)
        assert process.wait(timeout=60) == 0
    assert out.read_text().count("one") == out.read_text().count("two") == 1
