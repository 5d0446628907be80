"""Says that the current folder has sessions of a version whose services belonged to one folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from leadhand.errors import LeadhandError
from leadhand.local.bindings import OLD, find_binding
from leadhand.local.redis_data import holds_data
from leadhand.local.user_state import state_folder


def old_state(folder: Path, env: Mapping[str, str]) -> str | None:
    """The sentence on a `.leadhand` that is not the state folder in use; None without sessions.

    Nothing in it is started.
    """
    old = folder / OLD
    if not holds_data(old) or old.resolve() == state_folder(env).resolve():
        return None
    way = f"`leadhand --home {OLD} ls --all` lists them"
    if not _is_own(old, env):
        way = "`leadhand import` stops and lists them, and takes them over"
    return f"sessions from before are in ./{OLD}: {way}"


def _is_own(old: Path, env: Mapping[str, str]) -> bool:
    """Whether this user created or imported the folder here."""
    try:
        binding = find_binding(old, env)
    except LeadhandError:  # a link, another user's, or tracked by git: the import names it
        return False
    return binding is not None and not binding.importing
