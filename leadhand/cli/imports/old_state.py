"""Says that the current folder has sessions of a version whose services belonged to one folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from leadhand.cli.imports.marks import was_imported
from leadhand.local.bindings import OLD
from leadhand.local.redis_data import holds_data
from leadhand.local.user_state import state_folder


def old_state(folder: Path, env: Mapping[str, str]) -> str | None:
    """Returns a hint to import the sessions in a folder's `.leadhand`; None without any to import.

    Nothing in it is started or read.
    """
    old = folder / OLD
    if not holds_data(old) or old.resolve() == state_folder(env).resolve():
        return None
    if was_imported(old, env):
        return None
    return f"sessions from before are in ./{OLD}: `leadhand import` shows them and takes them over"
