"""Remembers which state folders were imported whole, so that commands name them no more."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from leadhand.local import state_dir as home_folder
from leadhand.local.user_state import imports_folder


def was_imported(folder: Path, env: Mapping[str, str]) -> bool:
    """Whether a marker file records that all sessions of the folder were imported."""
    return _mark(folder, env).exists()


def remember_import(folder: Path, env: Mapping[str, str]) -> None:
    """Creates a marker file that records that all sessions of the folder were imported."""
    mark = _mark(folder, env)
    with home_folder.fit(mark):
        mark.touch(mode=0o600)


def name_of(folder: Path) -> str:
    """Returns a hash of a folder's real path and inode; a new folder there has another."""
    text = f"{folder.resolve()}\0{folder.stat().st_ino}"
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


def _mark(folder: Path, env: Mapping[str, str]) -> Path:
    return imports_folder(env) / f"{name_of(folder)}.imported"
