"""The spill folders of attempts: makes them, and deletes those of deleted sessions.

Several installations of one user may share LEADHAND_SPILL. So the folder of a session is marked
with the id of the store that has the session. A folder with this store's mark is deleted once the
session is deleted and the folder was not written to for the retention time.
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

from app.core.outcomes import Outcome
from app.engine import Engine
from app.sessions.attempts import Work
from app.settings import Settings
from leadhand.models.verdicts import Reason, ReasonCode
from tasks.periodic import PeriodicThread
from workers.processes.user_folders import claim_folder

log = logging.getLogger(__name__)
#: Seconds between two rounds.
EVERY_S = 60.0
#: The file in a session's folder that holds the id of its store.
MARK = ".store"
#: Sessions looked up in one call.
AT_ONCE = 500
_SESSION = re.compile(r"^[0-9a-f]{8}$")
#: A file name has at most 255 bytes, fewer than the address of a deeply nested step may have.
_LONGEST, _KEPT = 200, 120


def attempt_folder(spill: Path, session: str, address: str, *, fence: int) -> Path:
    """Returns the path of one attempt's folder for long outputs; the fence makes it unique.

    >>> attempt_folder(Path("/s"), "0123abcd", "turns~1[2]/do", fence=3).name
    'turns~1[2]_do.3'
    """
    name = address.replace("/", "_")
    if len(name.encode()) > _LONGEST:
        beginning = name.encode()[:_KEPT].decode(errors="ignore")
        name = f"{beginning}-{hashlib.sha256(address.encode()).hexdigest()[:32]}"
    return spill.joinpath(session, f"{name}.{fence}")


class SpillCleanup(PeriodicThread):
    """Runs the cleanup once a minute until it is stopped."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("clearing of spills", EVERY_S, self._round)
        self._engine = engine
        self._folder = Path(engine.settings.spill)

    def clean(self, now_s: float) -> list[str]:
        """Delete old output folders of sessions deleted from the store; return the session ids."""
        ours, gone = self._known_store(), list[str]()
        sessions = list(self._sessions())
        for at in range(0, len(sessions), AT_ONCE):
            names = sessions[at : at + AT_ONCE]
            known = self._engine.store.existing(names)
            if self._known_store() != ours:  # Redis may have lost its data meanwhile
                return gone
            for name in names:
                folder = self._folder / name
                if name in known and ours:
                    _mark(folder, ours)
                elif ours and _read_mark(folder) == ours and self._is_old(folder, now_s):
                    shutil.rmtree(folder, ignore_errors=True)
                    gone.append(name)
        return gone

    def _known_store(self) -> str:
        """The id of the store, read now. Raises StoreUnknown."""
        self._engine.guard.check()
        known = self._engine.guard.expected_identity()
        return known.id if known else ""

    def _sessions(self) -> Iterator[str]:
        """The names of the session folders that belong to this user."""
        with suppress(OSError):
            if not _is_own(self._folder):
                return
            for folder in self._folder.iterdir():
                if _SESSION.match(folder.name) and _is_own(folder):
                    yield folder.name

    def _is_old(self, folder: Path, now_s: float) -> bool:
        """Whether the retention time has passed since the last attempt started there."""
        try:
            written = max(folder.stat().st_mtime, (folder / MARK).stat().st_mtime)
        except OSError:
            return False
        return now_s - written > self._engine.settings.spill_keep_s

    def _round(self) -> None:
        for session in self.clean(time.time()):
            log.info("spill of a deleted session removed", extra={"session": session})


def _is_own(folder: Path) -> bool:
    """Whether it is a folder of this user, and not a link."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _mark(folder: Path, store: str) -> None:
    """Write the store's id into the folder, unless it has a mark."""
    with suppress(OSError), (folder / MARK).open("x", encoding="ascii") as file:
        file.write(store)


def _read_mark(folder: Path) -> str | None:
    try:
        return (folder / MARK).read_text("ascii")
    except (OSError, ValueError):
        return None


def folder_failure(work: Work, settings: Settings) -> Outcome | None:
    """Returns a failure if a step's folder is not allowed, or the spill folder unusable; else None.

    The folder must be beneath a root of this worker, or beneath that of its worktrees; so must the
    folder from which the session's own was made. A step's own folder must exist beneath the
    session's, with links resolved. The spill folder must belong to this user.
    """
    try:
        claim_folder(settings.spill)
    except OSError as error:
        return _no_folder(str(error))
    roots, own = settings.roots, work.inputs.get("working_folder")
    if work.cwd is None or not (roots or own):
        return None
    folder = work.cwd.resolve()
    if own and not folder.is_relative_to(Path(str(work.facts.cwd)).resolve()):
        return _no_folder(f"{own!r} is outside of the session's working folder; name one inside it")
    if own and not folder.is_dir():
        return _no_folder(f"{own!r} is not a folder in {work.facts.cwd!r}; create it there first")
    allowed = [root.resolve() for root in (*roots, settings.worktrees_root)]
    for one in _used(work) if roots else ():
        if not any(one.resolve().is_relative_to(root) for root in allowed):
            place = settings.place
            return _no_folder(f"{str(one)!r} is not beneath a root of place {place!r}")
    return None


def _used(work: Work) -> list[Path]:
    """The working folder, and the folder from which it was made if it is a session's own."""
    made = work.workspace.get("origin") if work.workspace is not None else None
    return [one for one in (work.cwd, Path(str(made)) if made else None) if one is not None]


def _no_folder(text: str) -> Outcome:
    """A failure that is not retried."""
    reason = Reason(code=ReasonCode.FAILED_STEP, text=text)
    return Outcome(word="failed", text=text, reason=reason, retryable=False)
