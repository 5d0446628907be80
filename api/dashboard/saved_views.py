"""Saves the filters of the list of sessions under a name, for each visitor."""

from __future__ import annotations

from urllib.parse import parse_qs

from flask import Blueprint, Response, g, request

from api.dashboard.pages.sessions import Listed
from api.dashboard.replies import go_to, missing
from app.engine import Engine
from app.store.tokens import VIEWS, BrowserStore
from leadhand.errors import of_status

#: Maximum characters of a name.
NAME = 60
_FULL = f"you have {VIEWS} saved views; delete one first"


class SavedViews:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._views = engine.store.part(BrowserStore)

    def save_view(self) -> Response:
        """POST /ui/views: save the filters of the session list under a name, for the visitor."""
        name = request.form.get("name", "").strip()[:NAME]
        if not name:
            raise missing("name", "give the view a name")
        sent = parse_qs(request.form.get("address", "")[:2000])
        first = {key: values[0] for key, values in sent.items()}
        shown = Listed(self._engine, first, sent.get("status", []))
        if not shown.is_filtered:
            raise missing("address", "choose filters first")
        if not self._views.put_view(g.visitor.name, name, shown.address):
            raise of_status(409, _FULL)
        return go_to(f"/ui/sessions?{shown.address}")

    def drop_view(self) -> Response:
        """POST /ui/views/drop: delete a saved view."""
        self._views.drop_view(g.visitor.name, request.form.get("name", ""))
        return go_to("/ui/sessions")

    def add_to(self, routes: Blueprint) -> None:
        """Registers the routes that save and delete a visitor's views of the session list."""
        routes.add_url_rule("/views", "save_view", self.save_view, methods=["POST"])
        routes.add_url_rule("/views/drop", "drop_view", self.drop_view, methods=["POST"])
