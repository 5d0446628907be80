"""The environment of a session: what its submitter passed, beside what the worker has (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from leadhand.models.session_environment import FIELDS, WithEnvironment

M = TypeVar("M", bound=WithEnvironment)


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
