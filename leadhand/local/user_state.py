"""The user's own folders of bindings and hooks, outside of every working folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from leadhand.local import state_dir as home_folder
from leadhand.local.errors import UserStateUnfit


def bindings_folder(env: Mapping[str, str]) -> Path:
    """The folder of the bindings, created with mode 0700. Raises UserStateUnfit."""
    return _private_folder(env, "folders")


def hooks_folder(env: Mapping[str, str]) -> Path:
    """The folder of what hooks remember, created with mode 0700. Raises UserStateUnfit."""
    return _private_folder(env, "hooks")


def worktrees_folder(env: Mapping[str, str]) -> Path:
    """The folder of the worktrees and copies of tasks; it may not exist yet.

    Raises UserStateUnfit.
    """
    return _state_home(env) / "leadhand" / "worktrees"


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Raise UserStateUnfit, which names the folder, for an OSError inside this `with`."""
    try:
        yield
    except OSError as error:
        raise UserStateUnfit(str(folder), home_folder.reason(error)) from error


def _private_folder(env: Mapping[str, str], name: str) -> Path:
    state = _state_home(env)
    ours = state / "leadhand"
    with usable(ours):
        state.mkdir(parents=True, exist_ok=True)
        for folder in (ours, ours / name):
            folder.mkdir(mode=0o700, exist_ok=True)
            home_folder.close_to_others(folder)
    return ours / name


def _state_home(env: Mapping[str, str]) -> Path:
    """XDG_STATE_HOME if it is an absolute path, otherwise ~/.local/state."""
    named = Path(env.get("XDG_STATE_HOME") or "")
    if named.is_absolute():
        return named
    try:
        user = Path(env.get("HOME") or Path.home())
    except RuntimeError as error:
        raise UserStateUnfit("~/.local/state/leadhand", "this user has no home folder") from error
    return user.absolute() / ".local" / "state"
