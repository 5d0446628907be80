"""Where definition files are read: on disk, or as they were when a session was submitted."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from app.core.environment import Definitions
from leadhand.file_stamp import Stamp, stamp_of
from leadhand.models.folder_settings import FILES, TomlUnreadable, parse_toml, read_toml


class Sources(NamedTuple):
    """Reads the files of a folder from its stored definitions, and all others from disk."""

    definitions: Definitions | None = None

    def read(self, file: Path) -> tuple[str, dict[str, object]]:
        """Return a TOML file's text and content, from disk or as stored. Raises TomlUnreadable."""
        given = self.definitions
        if given is None or file.parent != Path(given.folder):
            return read_toml(file)
        why = given.unread.get(file.name)
        if why is not None:
            raise TomlUnreadable(str(file), None, why)
        text = given.agents if file.name == FILES[0] else given.tools
        return text, parse_toml(file, text)

    def stamp(self, file: Path) -> Stamp:
        """Return a tuple that changes with the file on disk; () for stored definitions."""
        given = self.definitions
        return () if given is not None and file.parent == Path(given.folder) else stamp_of(file)


#: Reads all files from disk.
ON_DISK = Sources()
