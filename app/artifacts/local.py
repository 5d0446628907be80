"""Stores and reads artifacts in a folder that this process shares with the API."""

from __future__ import annotations

from pathlib import Path

from app.artifacts.folder import ArtifactFolder
from app.domain.ids import SessionRef
from leadhand.errors import ArtifactUnknown


class LocalArtifacts:
    """The artifacts of all sessions, in a folder."""

    def __init__(self, folder: ArtifactFolder) -> None:
        self._folder = folder

    def put(self, ref: SessionRef, digest: str, file: Path) -> None:
        """Copy a file into the artifact folder, named by this digest. Raises ArtifactsFull."""
        del ref  # the settle records the reference
        self._folder.put_file(digest, file)

    def read(self, ref: SessionRef, digest: str, size: int) -> bytes:
        """Return all bytes of an artifact. Raises ArtifactUnknown if missing or of another size."""
        found = self._folder.read(digest)
        if found is None or len(found) != size:
            raise ArtifactUnknown(ref.id, digest)
        return found
