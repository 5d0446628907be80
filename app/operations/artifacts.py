"""Stores what workers upload, and removes what no session refers to."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from app.artifacts.folder import ArtifactFolder, Part
from app.operations.store_guard import StoreGuard
from app.store.store import Store

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
