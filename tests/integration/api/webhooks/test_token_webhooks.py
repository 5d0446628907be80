"""A token's webhook, from the command that makes the token to the receiver that is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.program import Action, Program, Step
from app.engine import Engine
from app.security.api_tokens import EVERYTHING, Owner
from app.sessions.submit import About
from app.webhooks import signature
from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from leadhand.client.client import Client
from leadhand.models.documents import Webhook
from tests.integration.api.test_api_process import LOOP, TOKEN, running
from tests.receiver import Received, Receiver, receiver
from tests.silent_engine import loop, silent_engine
from tests.waiting import wait_until
from workers.attempt.attempt import Attempts
from workers.attempt.heartbeat import Heartbeats
from workers.registry.agents import AgentBook

SECRET = "known to us and to the receiver"


@pytest.fixture
def at() -> Iterator[Receiver]:
    with receiver() as told:
        yield told


@pytest.fixture
def engine(store_url: str, at: Receiver) -> Engine:
    return silent_engine(store_url, secret="ours", webhook_hosts=(at.host,))


def owner_with(engine: Engine, webhook: Webhook) -> Owner:
    made = engine.tokens.create("ci", EVERYTHING, webhook=webhook)
    return engine.tokens.recognise(made.token).owner


def kept(engine: Engine, session: str, root: str | None = None) -> dict[str, str]:
    ref = SessionRef(session, root or session)
    return dict(engine.store.values(ref, "session", ["webhook", "rings"]))


def proves(received: Received) -> bool:
    """Verify a signature as a receiver would."""
    said = received.headers["Leadhand-Signature"]
    at_s = int(said.removeprefix("t=").partition(",")[0])
    return said == signature(SECRET, received.body, at_s=at_s)


@pytest.mark.slow
def test_what_a_token_submits_is_told_signed_to_its_receiver(
    tmp_path, store_url, broker_url, at, monkeypatch, capsys
):
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    with running(
        tmp_path, store_url, LEADHAND_BROKER_URL=broker_url, LEADHAND_WEBHOOK_HOSTS=at.host
    ) as url:
        monkeypatch.setenv("LEADHAND_URL", url)
        monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)
        line = ["token", "create", "ci", "--webhook", at.url, "--webhook-event", "ended"]
        scopes = [f"--scope={scope}" for scope in ("submit", "exec:free", "control")]
        assert run(cli, [*line, *scopes, "--webhook-secret-file", str(secret)]) == 0
        token = capsys.readouterr().out.strip()
        with Client(url, token) as client:
            session = client.submit(LOOP).id
            client.abort(session)
        wait_until(lambda: at.received)
        assert run(cli, ["token", "list", "--json"]) == 0
    [received] = at.received
    assert proves(received)
    assert json.loads(received.body)["session"]["id"] == session
    shown = capsys.readouterr().out
    host = {"host": at.host, "events": ["ended"], "signed": True}
    assert json.loads(shown)["items"][0]["webhook"] == host
    for text in (shown, (tmp_path / "log").read_text()):
        assert SECRET not in text
        assert "who=me" not in text


def test_a_document_s_own_webhook_goes_before_its_token_s(engine, at):
    theirs = Webhook(url=at.url, events=("failed", "waiting"), secret=SECRET)
    owner = owner_with(engine, theirs)
    without = engine.submit.document(loop(), owner=owner).session
    assert kept(engine, without) == {"webhook": theirs.model_dump_json(), "rings": "failed,waiting"}
    own = Webhook(url=f"http://{at.host}/own")
    with_own = engine.submit.document(loop(webhook=own), owner=owner).session
    assert kept(engine, with_own) == {"webhook": own.model_dump_json(), "rings": "ended"}


def test_a_child_does_not_inherit_its_parent_s_token_s_webhook(engine, at, redis_client):
    owner = owner_with(engine, Webhook(url=at.url))
    document: Any = loop().model_dump(mode="json")
    inputs: dict[str, JsonValue] = {"document": cast("JsonValue", document)}
    program = Program(body=(Step(id="child", action=Action.CHILD, inputs=inputs),))
    parent = engine.submit.program(program, About(kind="loop", name="x"), owner=owner).session
    attempts = Attempts(
        engine, worker="w/1", agents=lambda: AgentBook.load([]), heart=Heartbeats(engine)
    )
    attempts(SessionRef(parent, parent), "child")
    [child] = redis_client.smembers(f"lh:{{{parent}}}:{parent}:children")
    assert not any(kept(engine, child, root=parent).values())


def test_a_secret_that_is_no_text_is_refused_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    binary = tmp_path / "secret"
    binary.write_bytes(b"\xff\xfe")
    line = ["token", "create", "ci", "--scope", "submit", "--webhook", "https://h.example/"]
    assert run(cli, [*line, "--webhook-secret-file", str(binary)]) == 1
    assert "cannot be read as text" in capsys.readouterr().err
