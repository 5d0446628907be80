"""Stores what workers upload, lists and reads it, and removes what no session refers to."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from app.core.addresses import SessionRef, by_number, iso
from app.core.artifacts import is_digest
from app.core.program import Program
from app.fleet.store_guard import StoreGuard
from app.history.values import written_name
from app.sessions.listing import encode_cursor, number_of
from app.store.artifact_folder import ArtifactFolder, Part
from app.store.store import Store
from leadhand.errors import ArtifactUnknown, ProgramNewer
from leadhand.models.views.step import ArtifactView
from leadhand.models.views.view import Page

log = logging.getLogger(__name__)
#: The file in the folder of artifacts that holds the id of its store.
MARK = ".store"


class Uploads:
    """The write side of the folder of artifacts. All methods raise StoreAway."""

    def __init__(self, store: Store, folder: ArtifactFolder, guard: StoreGuard) -> None:
        self._store = store
        self._folder = folder
        self._guard = guard

    def put_part(self, digest: str, uploader: str, part: Part) -> bool:
        """Store the next part of an uploaded artifact; returns whether it is complete.

        Raises ArtifactsFull, ArtifactChanged.
        """
        return self._folder.put_part(digest, uploader, part)

    def sweep(self, now_s: float | None = None) -> list[str]:
        """Delete artifacts that no session refers to and that are a day old; returns their digests.

        A folder with the mark of another store is not swept, and nothing is removed while Redis
        holds another store than expected. Raises StoreUnknown.
        """
        ours = self._identity()
        if not ours or not self._is_ours(ours):
            return []
        return self._folder.sweep(self._referenced, now_s=now_s)

    def _referenced(self, digests: Collection[str]) -> set[str]:
        found = self._store.artifacts().referenced(digests)
        self._guard.check()  # Redis may have lost its data meanwhile
        return found

    def _identity(self) -> str:
        self._guard.check()
        known = self._guard.expected_identity()
        return known.id if known else ""

    def _is_ours(self, ours: str) -> bool:
        """Whether the folder belongs to this store; one without a mark is marked."""
        path: Path = self._folder.path / MARK
        if not self._folder.path.is_dir():
            return False
        with suppress(FileExistsError), path.open("x", encoding="ascii") as file:
            file.write(ours)
        found = path.read_text("ascii")
        if found != ours:
            log.warning("artifacts of another store are not swept", extra={"folder": str(path)})
        return found == ours


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
