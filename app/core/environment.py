"""What a session was submitted with: variables, and the definitions of its folder.

See decisions: security.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from leadhand.models.session_environment import FIELDS, UMASK, WithEnvironment

M = TypeVar("M", bound=WithEnvironment)
_UMASK = re.compile("[0-7]{1,4}")


class SessionEnvironment(NamedTuple):
    """Values by name. They are never logged, shown, or stored as plain text."""

    #: Every body gets these.
    passed: Mapping[str, str] = {}
    #: These replace what a body inherits from the worker; None for a variable that is not set.
    shell: Mapping[str, str | None] = {}
    #: The Python of its functions; None for the worker's.
    python: str | None = None

    def __repr__(self) -> str:
        return f"SessionEnvironment({sorted(self.passed)}, {sorted(self.shell)})"

    @property
    def is_empty(self) -> bool:
        """Whether the submitter passed no environment variables and no Python."""
        return not self.passed and not self.shell and self.python is None

    @property
    def path(self) -> str | None:
        """The PATH that the submitter passed for the session's processes; None for the worker's."""
        return self.passed.get("PATH") or self.shell.get("PATH")

    @property
    def umask(self) -> int | None:
        """The umask of the submitting shell; None for the worker's.

        >>> SessionEnvironment(shell={"LEADHAND_UMASK": "027"}).umask == 0o027
        True
        """
        given = self.shell.get(UMASK) or ""
        return int(given, 8) if _UMASK.fullmatch(given) else None

    def inherit(self, worker: Mapping[str, str]) -> dict[str, str]:
        """Returns the worker's variables, replaced or removed as the submitting shell's values say.

        >>> SessionEnvironment(shell={"PATH": "/opt", "KEY": None}).inherit({"KEY": "k", "A": "b"})
        {'A': 'b', 'PATH': '/opt'}
        """
        values = {**worker, **self.shell}
        return {name: value for name, value in values.items() if value is not None}

    def below(self, parent: SessionEnvironment) -> SessionEnvironment:
        """Returns a child session's environment: its own values, and its parent's for the rest."""
        return SessionEnvironment(
            {**parent.passed, **self.passed},
            {**parent.shell, **self.shell},
            self.python or parent.python,
        )


def environment_of(given: WithEnvironment) -> SessionEnvironment:
    """Returns the environment variables and Python that a document or run contains."""
    return SessionEnvironment(given.env, given.shell_env, given.python)


def without_environment(given: M) -> M:
    """Returns a copy of a document or run without its environment, to be compiled and stored."""
    if not given.model_fields_set & FIELDS:
        return given
    bare = given.model_copy(update={"env": {}, "shell_env": {}, "python": None})
    bare.__pydantic_fields_set__.difference_update(FIELDS)
    return bare


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
