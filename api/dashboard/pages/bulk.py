"""Bulk actions: how many sessions match a filter, and one verb for all of them."""

from __future__ import annotations

from typing import get_args

from flask import Blueprint, Response, request

from api.auth import may_bring_commands
from api.dashboard.pages.sessions import Listed
from api.dashboard.render import page
from api.dashboard.replies import missing
from app.engine import Engine
from app.sessions.bulk import How
from leadhand.contract.sessions import BulkVerb, SessionsWanted

VERBS: tuple[BulkVerb, ...] = get_args(BulkVerb)


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Registers the pages that preview and apply one action to all sessions that match a filter."""

    def bulk() -> Response:
        """GET /ui/sessions/bulk: how many sessions a verb would apply to, before it does."""
        verb = _verb(request.args.get("verb"))
        listed = Listed(engine, request.args, request.args.getlist("status"))
        if not listed.is_filtered or listed.wanted == SessionsWanted():
            raise missing("filter", "choose a status, a kind, a label or a name first")
        found = engine.bulk.preview(verb, listed.wanted)
        views = [engine.queries.session(one) for one in found.first]
        return page("bulk.html", listed=listed, verb=verb, preview=found, items=views)

    def bulk_apply() -> Response:
        """POST /ui/sessions/bulk: apply the verb to the sessions that were counted."""
        verb = _verb(request.form.get("verb"))
        reason = request.form.get("reason", "").strip()[:2000]
        how = How(verb, reason=reason, free=may_bring_commands(engine))
        done = engine.bulk.carry_out_token(how, request.form.get("token", ""))
        return page("bulk_done.html", done=done, verb=verb)

    routes.add_url_rule("/sessions/bulk", "bulk", bulk)
    routes.add_url_rule("/sessions/bulk", "bulk_apply", bulk_apply, methods=["POST"])


def _verb(text: str | None) -> BulkVerb:
    found = next((verb for verb in VERBS if verb == text), None)
    if found is None:
        raise missing("verb", f"choose one of: {', '.join(VERBS)}")
    return found
