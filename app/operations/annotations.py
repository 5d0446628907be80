"""What people note on a session: its title, a note, and whether lists hide it (archive)."""

from __future__ import annotations

from pydantic import JsonValue

from app.operations.registry import Registry
from app.operations.transitions import Transitions
from app.queries.sessions import Queries
from app.redaction import without_keys
from leadhand.errors import ControlRefused
from leadhand.models.views.session import SessionView


class Annotations:
    """Changes nothing of a session's work."""

    def __init__(self, registry: Registry, transitions: Transitions, queries: Queries) -> None:
        self._registry = registry
        self._transitions = transitions
        self._queries = queries

    def annotate(
        self,
        session: str,
        *,
        title: str | None = None,
        note: str | None = None,
        archived: bool | None = None,
    ) -> SessionView:
        """Set a session's title and note (an empty text removes it), and whether lists hide it.

        None leaves it as it is. A resume shows a hidden session again. Raises SessionUnknown, and
        ControlRefused for hiding one that is at work.
        """
        ref = self._registry.ref(session)
        arguments: dict[str, JsonValue] = {
            "title": None if title is None else without_keys(title),
            "note": None if note is None else without_keys(note),
            "archived": archived,
        }
        given = {name: value for name, value in arguments.items() if value is not None}
        answer = self._transitions.run("annotate", ref, given)
        if answer.word == "refused":
            raise ControlRefused(session, "archive", answer.status or "", "stop it first")
        return self._queries.session(session)
