"""The configuration files of projects whose commands the user has approved, by digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from leadhand.cli.guards.config import Loaded
from leadhand.local import state_dir, user_state

_FILE = "trusted.json"


def is_trusted(loaded: Loaded, env: Mapping[str, str]) -> bool:
    """Whether the user has approved the file with the gates, which may then run."""
    if loaded.is_own or loaded.file is None:
        return True
    return _read(env).get(_key(loaded.file)) == loaded.digest


def lost_guard(loaded: Loaded, env: Mapping[str, str]) -> Path | None:
    """Returns the approved file of the project that no longer has a guard; else None."""
    known = _read(env)
    return next((file for file in loaded.without if _key(file) in known), None)


def why_unchecked(loaded: Loaded, env: Mapping[str, str]) -> str | None:
    """Returns why the gates may not run before a stop; None if they may."""
    lost = lost_guard(loaded, env)
    if lost is not None:
        hint = "put it back, or run `leadhand hook trust` if agents may stop without it"
        return f"{lost} was approved and has no [guard] any more; {hint}"
    if not is_trusted(loaded, env):
        hint = "look at it, then run `leadhand hook trust`"
        return f"{loaded.file} is not approved as it is now; {hint}"
    return None


def trust(loaded: Loaded, env: Mapping[str, str]) -> None:
    """Records that the user approves the file with its present content. Raises UserStateUnfit."""
    if loaded.file is not None:
        _write(env, _read(env) | {_key(loaded.file): loaded.digest})


def forget(file: Path, env: Mapping[str, str]) -> None:
    """Deletes the approval of a file whose guard was removed. Raises UserStateUnfit."""
    _write(env, {name: digest for name, digest in _read(env).items() if name != _key(file)})


def _key(file: Path) -> str:
    """The file's name in its real folder: a link that is removed keeps it."""
    return str(file.parent.resolve() / file.name)


def _write(env: Mapping[str, str], fields: Mapping[str, str | int | float]) -> None:
    file = user_state.hooks_folder(env) / _FILE
    with user_state.usable(file):
        state_dir.write_fields(file, fields)


def _read(env: Mapping[str, str]) -> dict[str, str | int | float]:
    return state_dir.read_fields(user_state.hooks_folder(env) / _FILE)


def missed_file(agent_session: str, env: Mapping[str, str]) -> Path:
    """Returns the path of the file that records an agent's stops while the API was unreachable."""
    return user_state.hooks_folder(env) / f"missed-{agent_session.replace(':', '_')}.txt"
