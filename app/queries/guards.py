"""Reads Stop guards: their counters, and whether a hook runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

from app.domain.clock import iso
from app.domain.control import AT_WORK
from app.domain.guards.decisions import GuardState
from app.domain.ids import SessionRef
from app.queries.sessions import Queries
from app.store.store import Store
from leadhand.contract.sessions import SessionsWanted, ShownStatus
from leadhand.models.views.guards import GuardsView, GuardView
from leadhand.models.views.session import SessionView

#: Statuses of guards whose agents may still stop.
_OPEN: tuple[ShownStatus, ...] = ("active", "waiting")
_PAGE = 100
_INSIDE = "inside "


class GuardQueries:
    """Raises StoreAway."""

    def __init__(self, store: Store, queries: Queries) -> None:
        self._store = store
        self._queries = queries

    def listed(self, agent_session: str | None, *, inside: str | None = None) -> GuardsView:
        """Returns open guards (agents' Stop hooks), newest first, of one agent session or all."""
        items = [self._view(one) for one in self._sessions(agent_session, inside)]
        return GuardsView(active=sum(one.active for one in items), total=len(items), items=items)

    def open_guards(
        self, agent_session: str | None, *, inside: str | None = None
    ) -> Iterator[SessionRef]:
        """Yields the session references of unended guards (of agents' Stop hooks), newest first."""
        for one in self._sessions(agent_session, inside):
            yield SessionRef(one.id, one.root)

    def children_at_work(self, session: str) -> list[str]:
        """Returns a line for each child session of a session that has not ended, oldest first."""
        ref = self._store.ref(session)
        found = self._store.fields_of([*self._store.children(ref)]) if ref is not None else {}
        working = [
            (fields, child)
            for child, (_, fields) in found.items()
            if fields.get("status") in AT_WORK
        ]
        working.sort(key=lambda one: (int(one[0]["created"]), one[1]))
        return [
            f"{child} ({fields.get('label') or fields['name']}): {fields['status']}"
            for fields, child in working
        ]

    def _sessions(self, agent_session: str | None, inside: str | None) -> Iterator[SessionView]:
        label = f"{_INSIDE}{inside}" if inside else None
        wanted = SessionsWanted(kind="guard", name=agent_session, label=label, status=_OPEN)
        cursor: str | None = None
        while True:
            page = self._queries.sessions(wanted, limit=_PAGE, cursor=cursor)
            yield from page.items
            cursor = page.next
            if cursor is None:
                return

    def _view(self, session: SessionView) -> GuardView:
        ref = SessionRef(session.id, session.root)
        stored = self._store.values(ref, "guard", ["state", "hook"])
        state = parse_state(stored.get("state"))
        hook = json.loads(stored["hook"]) if "hook" in stored else None
        label = session.label or ""
        return GuardView(
            guard=session.id,
            status=session.status,
            agent_session=session.name,
            inside=label.removeprefix(_INSIDE) if label.startswith(_INSIDE) else None,
            active=hook is not None,
            active_since=iso(hook["at"]) if hook else None,
            stops=state.stops,
            failed_stops=state.failed_stops,
            blocks=state.blocks,
            blocks_in_a_row=state.row,
            overridden=state.overridden,
            stage=state.stage,
            retries=state.retries,
            last=state.last,
            limit_reached=", ".join(name.replace("*", "all gates") for name in state.given_up)
            or None,
            last_stop_at=iso(state.last_stop_ms) if state.last_stop_ms is not None else None,
        )


def parse_state(text: str | None) -> GuardState:
    """Parses the stored JSON state of a Stop-hook guard; returns a new state if none is stored."""
    return GuardState.model_validate_json(text) if text else GuardState()
