"""The definitions of a folder, as they were when a session was submitted (decision 81)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Definitions(NamedTuple):
    """The files of a folder that define agents and tools; flows are part of the program."""

    folder: str
    #: The text of agents.toml, and that of tools.toml; empty without the file.
    agents: str = ""
    tools: str = ""
    #: Why one of these files could not be read, by its name.
    unread: Mapping[str, str] = MappingProxyType({})
    #: Whether the functions in its folder `tools` are tools.
    functions: bool = True
    #: Whether only what the user has approved of it applies: its token lacks exec:free.
    approved_only: bool = False

    @property
    def text(self) -> str:
        """The folder's agent and tool definitions as JSON with sorted keys, as they are stored."""
        return json.dumps({**self._asdict(), "unread": {**self.unread}}, sort_keys=True)

    @property
    def mark(self) -> str:
        """The digest (32 hex digits) of the definitions, which a session's signature covers."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def parse_definitions(text: str) -> Definitions:
    """Parses stored definitions (JSON), and ignores fields that a newer version has added."""
    fields = json.loads(text)
    return Definitions(**{name: fields[name] for name in Definitions._fields if name in fields})
