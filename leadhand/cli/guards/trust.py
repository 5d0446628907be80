"""The configuration files of projects whose commands the user has approved, by digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from leadhand.cli.guards.config import Loaded
from leadhand.local import state_dir, user_state

_FILE = "trusted.json"


def is_trusted(loaded: Loaded, env: Mapping[str, str]) -> bool:
    """Whether the gates may run: the file is the user's own, or it is as the user approved it."""
    if loaded.is_own or loaded.file is None:
        return True
    return _read(env).get(str(loaded.file.resolve())) == loaded.digest


def was_trusted(loaded: Loaded, env: Mapping[str, str]) -> bool:
    """Whether the user has approved an earlier text of the file."""
    return loaded.file is not None and str(loaded.file.resolve()) in _read(env)


def trust(loaded: Loaded, env: Mapping[str, str]) -> None:
    """Record that the user approves the file as it is. Raises UserStateUnfit."""
    if loaded.file is None:
        return
    fields = _read(env) | {str(loaded.file.resolve()): loaded.digest}
    file = user_state.hooks_folder(env) / _FILE
    with user_state.usable(file):
        state_dir.write_fields(file, fields)


def _read(env: Mapping[str, str]) -> dict[str, str | int | float]:
    return state_dir.read_fields(user_state.hooks_folder(env) / _FILE)


def missed_file(agent_session: str, env: Mapping[str, str]) -> Path:
    """The file of what happened at an agent's stops while the API was away."""
    return user_state.hooks_folder(env) / f"missed-{agent_session.replace(':', '_')}.txt"
