"""The page that forks a session or runs its document again, with changes."""

from __future__ import annotations

import json
import secrets

from flask import Blueprint, Response, request

from api.dashboard.buttons import can_fork, can_rerun
from api.dashboard.render import page
from app.engine import Engine
from app.redaction import without_keys

#: Inputs that the form shows.
INPUTS = 100


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Registers the page with the forms for a fork or a rerun of a session."""

    def again(session: str) -> Response:
        """GET /ui/sessions/ID/again: the forms of a fork and of a rerun."""
        view = engine.queries.session(session)
        return page(
            "again.html",
            view=view,
            after=request.args.get("after", "")[:1000],
            forks=can_fork(view),
            reruns=can_rerun(view),
            inputs=inputs_of(engine, session),
            agents=[one.name for one in engine.fleet.agents()],
            key=secrets.token_hex(16),
        )

    routes.add_url_rule("/sessions/<session>/again", "again", again)


def inputs_of(engine: Engine, session: str) -> dict[str, str]:
    """Returns a session's inputs by name, as texts without credentials; empty if it has none."""
    text = engine.store.copies().request(engine.queries.ref(session))
    document = json.loads(text) if text is not None else {}
    given = document.get("inputs") if isinstance(document, dict) else None
    if not isinstance(given, dict):
        return {}
    pairs = list(given.items())[:INPUTS]
    return {
        name: without_keys(value if isinstance(value, str) else json.dumps(value))
        for name, value in pairs
    }
