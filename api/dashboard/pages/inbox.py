"""The inbox: all that needs a person, with the forms that answer it."""

from __future__ import annotations

from flask import Blueprint, Response, request

from api.dashboard.render import page
from app.engine import Engine

LIMIT = 30


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Registers the page of sessions that need a person."""

    def listed() -> dict[str, object]:
        cursor = request.args.get("cursor") or None
        return {"found": engine.attention.page(limit=LIMIT, cursor=cursor)}

    def inbox() -> Response:
        return page("inbox.html", listed())

    def inbox_panel() -> Response:
        return page("inbox_list.html", listed())

    def badge() -> Response:
        return page("badge.html")

    routes.add_url_rule("/inbox", "inbox", inbox)
    routes.add_url_rule("/panels/inbox", "inbox_panel", inbox_panel)
    routes.add_url_rule("/panels/badge", "badge", badge)
