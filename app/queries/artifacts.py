"""Lists and reads the artifacts of a session."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from app.artifacts.folder import ArtifactFolder
from app.domain.addresses import by_number
from app.domain.artifacts import is_digest
from app.domain.clock import iso
from app.domain.ids import SessionRef
from app.domain.program import Program
from app.history.written_names import written_name
from app.queries.cursors import encode_cursor, number_of
from app.store.store import Store
from leadhand.errors import ArtifactUnknown, ProgramNewer
from leadhand.models.views.artifact import ArtifactView
from leadhand.models.views.view import Page


class Piece(NamedTuple):
    """Some bytes of an artifact, with the size and media type of the whole."""

    data: bytes
    size: int
    media_type: str


class ArtifactQueries:
    """Raises SessionUnknown for ids that are not there, StoreAway while Redis does not answer."""

    def __init__(
        self,
        store: Store,
        ref_of: Callable[[str], SessionRef],
        folder: ArtifactFolder,
        read: Callable[[str], Program],
    ) -> None:
        self._store = store
        self._program = read
        self._ref = ref_of
        self._folder = folder

    def listed(
        self, session: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ArtifactView]:
        """Returns a page of a session's artifacts, sorted by the addresses of their steps."""
        ref = self._ref(session)
        found = self._store.artifacts().listed(ref)
        start = number_of(cursor)
        names = sorted(found, key=by_number)[start : start + limit + 1]
        program = self._program_of(ref) if names else None
        items = [_view(name, found[name], program) for name in names[:limit]]
        return Page(items=items, next=encode_cursor(start + limit) if len(names) > limit else None)

    def _program_of(self, ref: SessionRef) -> Program | None:
        """The session's program; None for one of a newer version."""
        try:
            return self._program(self._store.values(ref, "session", ["program"])["program"])
        except (ProgramNewer, KeyError):
            return None

    def read(self, session: str, digest: str, *, at: int, limit: int) -> Piece:
        """Returns bytes of a session's artifact from offset `at`. Raises ArtifactUnknown."""
        ref = self._ref(session)
        known = self._store.artifacts().about(ref, digest) if is_digest(digest) else None
        data = self._folder.read(digest, at=at, limit=limit) if known is not None else None
        if known is None or data is None:
            raise ArtifactUnknown(session, digest[:80])
        return Piece(data, *known)


def _view(name: str, text: str, program: Program | None) -> ArtifactView:
    address, _, kind = name.rpartition("|")
    one = json.loads(text)
    return ArtifactView.model_validate({
        "name": f"{address}/{kind}", "step": address, "kind": kind, "digest": one["digest"],
        "size": one["size"], "media_type": one["media_type"], "at": iso(one["at"]),
        "label": written_name(program, address) if program is not None else "",
    })  # fmt: skip
