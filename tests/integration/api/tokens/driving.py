"""Creates tokens, and submits and carries out sessions with them."""

from __future__ import annotations

from typing import Any

from flask.testing import FlaskClient

from app.core.addresses import SessionRef
from app.engine import Engine
from app.security.api_tokens import EVERYTHING
from leadhand.models.views.fleet import NewToken, Quotas
from workers.attempt.attempt import Attempts
from workers.attempt.heartbeat import Heartbeats
from workers.registry.agents import AgentBook

SECRET = "of the test"
S = "/v1/sessions"
LOOP = {
    "kind": "loop",
    "task": "write it",
    "baseline": False,
    "checker": "true",
    "doer": {"command": "true"},
}
DO = "loop~1[1]/do"


def made(engine: Engine, **quotas: int) -> NewToken:
    """Create a token with all scopes."""
    return engine.tokens.create("ci", EVERYTHING, quotas=Quotas(**quotas))


def submit(client: FlaskClient, token: NewToken, *, key: str = "", **more: object) -> Any:
    """Submit a loop with a token; the HTTP response."""
    headers = {"Authorization": f"Bearer {token.token}"}
    if key:
        headers["Idempotency-Key"] = key
    return client.post(S, json={**LOOP, **more}, headers=headers)


def session_of(answer: Any) -> str:
    """The id of the session that a response created."""
    assert answer.status_code == 202, answer.data
    return str(answer.json["id"])


def spent(engine: Engine, token: NewToken) -> tuple[int, int, int]:
    """What a token has used: sessions, steps and bytes."""
    [view] = [view for view in engine.tokens.views() if view.id == token.id]
    return view.spent.sessions, view.spent.steps, view.spent.bytes


def carry_out(engine: Engine, session: str, *addresses: str) -> None:
    """Run steps of a session with a worker in this process."""
    attempts = Attempts(
        engine, worker="w/1", agents=lambda: AgentBook.load([]), heart=Heartbeats(engine)
    )
    for address in addresses:
        attempts(SessionRef(session, session), address)
