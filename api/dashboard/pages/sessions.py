"""The list of sessions: its filters are in the address, which can be saved as a view and sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlencode

from flask import Blueprint, Response, g, redirect, request
from pydantic import ValidationError

from api.dashboard.buttons import row_buttons
from api.dashboard.render import page
from app.engine import Engine
from app.security.api_tokens import Scope
from app.store.tokens import BrowserStore
from leadhand.contract.sessions import SessionsWanted
from leadhand.models.views.session import SessionView
from leadhand.models.views.view import Page

LIMIT = 50
STATUSES = (
    "active", "waiting", "stopping", "stopped", "failed", "completed", "exited", "aborted",
)  # fmt: skip
KINDS = ("loop", "workflow", "flow", "graph", "plan", "guard")
ARCHIVED = {"no": "Without archived", "any": "With archived", "only": "Archived"}
_ID = re.compile(r"[0-9a-f]{8}")


class Listed:
    """What the list shows for an address."""

    def __init__(self, engine: Engine, arguments: Mapping[str, str], statuses: list[str]) -> None:
        self.statuses = [one for one in statuses if one in STATUSES]
        self.kind = arguments.get("kind", "") if arguments.get("kind") in KINDS else ""
        self.query = arguments.get("q", "").strip()[:120]
        asked = arguments.get("archived", "no")
        self.archived = asked if asked in ARCHIVED else "no"
        self.cursor = arguments.get("cursor") or None
        #: The filter that the list has: a query is a label, or else a name.
        self.wanted = SessionsWanted()
        self.found = self._find(engine)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The filters that are set, as (name, value) pairs for the query of a URL."""
        archived = "" if self.archived == "no" else self.archived
        given = [("kind", self.kind), ("q", self.query), ("archived", archived)]
        chosen = [("status", one) for one in self.statuses]
        return chosen + [(name, value) for name, value in given if value]

    @property
    def address(self) -> str:
        """The filters that are set, as the query string of a URL."""
        return urlencode(self.pairs)

    @property
    def next_url(self) -> str:
        """Returns the URL query of the next page of the list: the filters and the cursor."""
        return urlencode([*self.pairs, ("cursor", self.found.next or "")])

    @property
    def is_filtered(self) -> bool:
        """Whether any filter is set."""
        return bool(self.pairs)

    def _find(self, engine: Engine) -> Page[SessionView]:
        wanted = {
            "status": tuple(self.statuses), "kind": self.kind or None, "archived": self.archived,
        }  # fmt: skip
        found = self._search(engine, {**wanted, "label": self.query} if self.query else wanted)
        # A word is a label or a name; both have an index, and a label is the rarer one.
        if self.query and not found.items:
            found = self._search(engine, {**wanted, "name": self.query})
        return found

    def _search(self, engine: Engine, values: Mapping[str, object]) -> Page[SessionView]:
        self.wanted = self._filter(values)
        return engine.queries.sessions(self.wanted, limit=LIMIT, cursor=self.cursor)

    def _filter(self, values: Mapping[str, object]) -> SessionsWanted:
        try:
            return SessionsWanted.model_validate(values)
        except ValidationError:
            return SessionsWanted()


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Registers the page that lists sessions."""
    views = engine.store.part(BrowserStore)

    def listed() -> dict[str, object]:
        found = Listed(engine, request.args, request.args.getlist("status"))
        control = Scope.CONTROL in g.visitor.scopes
        return {
            "listed": found,
            "statuses": STATUSES,
            "kinds": KINDS,
            "archived": ARCHIVED,
            "saved": views.views(g.visitor.name),
            "row_buttons": row_buttons if control else None,
        }

    def sessions() -> Response:
        asked = request.args.get("q", "").strip()
        if _ID.fullmatch(asked) and engine.store.ref(asked) is not None:
            found = redirect(f"/ui/sessions/{asked}")
            assert isinstance(found, Response)
            return found
        return page("sessions.html", listed())

    def sessions_panel() -> Response:
        return page("sessions_list.html", listed())

    routes.add_url_rule("/sessions", "sessions", sessions)
    routes.add_url_rule("/panels/sessions", "sessions_panel", sessions_panel)
