"""Deletes what sessions that are gone left in LEADHAND_SPILL on this host, and nothing else.

Several installations of a user may share that folder. So each session's folder is marked with the
store that knows the session, while it does; one that is marked with ours goes once the session is
gone and nobody has written there for long enough.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from app.engine import Engine
from tasks.rounds import Rounds

log = logging.getLogger(__name__)

#: Seconds between two looks.
EVERY_S = 60.0
#: In a session's folder: which store knows the session.
MARK = ".store"
#: Sessions that are asked for at once.
AT_ONCE = 500
_SESSION = re.compile(r"^[0-9a-f]{8}$")
#: A file's name has at most 255 bytes, and an address in many loops has more. The fence needs room.
_LONGEST, _KEPT = 200, 120


def folder_of(spill: Path, session: str, address: str, *, fence: int) -> Path:
    """Where an attempt leaves what it leaves: no other attempt has that folder.

    >>> folder_of(Path("/s"), "0123abcd", "turns~1[2]/do", fence=3).name
    'turns~1[2]_do.3'
    """
    name = address.replace("/", "_")
    if len(name.encode()) > _LONGEST:
        beginning = name.encode()[:_KEPT].decode(errors="ignore")
        name = f"{beginning}-{hashlib.sha256(address.encode()).hexdigest()[:32]}"
    return spill / session / f"{name}.{fence}"


class Spills(Rounds):
    """Looks until it is stopped."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("clearing of spills", EVERY_S, self._round)
        self._engine = engine
        self._folder = Path(engine.settings.spill)

    def look(self, now_s: float) -> list[str]:
        """Mark what is not marked yet, and delete what is nobody's any more; whose that was."""
        ours, gone = self._engine.store.mark(), list[str]()
        sessions = list(self._sessions())
        for at in range(0, len(sessions), AT_ONCE):
            names = sessions[at : at + AT_ONCE]
            known = self._engine.store.known(names)
            for name in names:
                folder = self._folder / name
                if name in known:
                    _mark(folder, ours)
                elif _marked(folder) == ours and self._is_old(folder, now_s):
                    shutil.rmtree(folder, ignore_errors=True)
                    gone.append(name)
        return gone

    def _sessions(self) -> Iterator[str]:
        """The folders that are sessions', and ours to delete."""
        with suppress(OSError):
            if not _is_own(self._folder):
                return
            for folder in self._folder.iterdir():
                if _SESSION.match(folder.name) and _is_own(folder):
                    yield folder.name

    def _is_old(self, folder: Path, now_s: float) -> bool:
        """Whether no attempt has begun there for so long."""
        try:
            written = max(folder.stat().st_mtime, (folder / MARK).stat().st_mtime)
        except OSError:
            return False
        return now_s - written > self._engine.settings.spill_keep_s

    def _round(self) -> None:
        for session in self.look(time.time()):
            log.info("deleted what a session left", extra={"session": session})


def _is_own(folder: Path) -> bool:
    """Whether it is a folder itself, no link to one, and belongs to our user."""
    try:
        told = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(told.st_mode) and told.st_uid == os.getuid()


def _mark(folder: Path, store: str) -> None:
    """Say which store knows the session, unless that is said already."""
    with suppress(OSError), (folder / MARK).open("x", encoding="ascii") as file:
        file.write(store)


def _marked(folder: Path) -> str | None:
    try:
        return (folder / MARK).read_text("ascii")
    except (OSError, ValueError):
        return None
