"""Outbox of messages between sessions: delivered at once if possible, otherwise by the sweeper.

At least once: every message stays in the store until it is done, and handling it is idempotent.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import datetime
from pathlib import Path

from app.core.addresses import SessionRef
from app.core.states import PARENT_DID, Control, Seen, SessionStatus
from app.errors import ExportOwed
from app.plans.progress import spawn_task
from app.sessions.bulk import Deletion
from app.sessions.context import SessionContext
from app.sessions.control import SessionControl
from app.shared import expire_lock
from leadhand.errors import ControlRefused, SessionChanged, SessionStillRuns, SessionUnknown
from leadhand.models.views.result import ExportView

log = logging.getLogger(__name__)

#: The known messages. Others come from a newer version, whose process may handle them.
VERBS = ("deliver", "delete", "forget", "stop", "resume", "abort", "spawn", "lock")
#: Delay of a message of a newer version.
NEWER_MS = 2_000
#: The statuses in which a parent still wants its children stopped, or resumed.
_WANTED = {
    "stop": (SessionStatus.STOPPING, SessionStatus.STOPPED),
    "resume": (SessionStatus.ACTIVE,),
}


class Outbox:
    """Handles outbox messages."""

    def __init__(self, engine: SessionContext, control: SessionControl, deletion: Deletion) -> None:
        self._engine = engine
        self._store = engine.store
        self._control = control
        self._deletion = deletion

    def run(self, errand: str) -> None:
        """Handle one message and remove it from the outbox, also if it has become pointless."""
        seen = self._store.errand_score(errand)
        if seen is None:
            return
        if errand.partition("|")[0] not in VERBS:
            log.info("left to a newer version", extra={"errand": errand})
            self._store.postpone("errands", errand, NEWER_MS)
            return
        verb, session, root, *more = errand.rstrip("|").split("|")
        try:
            if verb == "spawn":
                spawn_task(self._engine, SessionRef(session, root), more[0])
            elif verb == "lock":
                expire_lock(self._engine, root, more[0])
            else:
                self._handle(verb, SessionRef(session, root), seen)
        except SessionChanged:
            return  # the next sweep handles it in its new state
        except (SessionUnknown, ControlRefused, SessionStillRuns):
            log.debug("errand is moot", extra={"errand": errand})
        self._store.remove_errand(errand, seen)

    def _handle(self, verb: str, ref: SessionRef, seen: float) -> None:
        match verb:
            case "deliver":
                self._engine.reports.deliver(ref)
            case "delete":
                self._control.end_for_good(ref)
            case "forget":
                self._forget(ref, seen)
            case "stop" | "resume" | "abort":
                self._follow_parent(ref, verb)
            case _:
                raise AssertionError(verb)

    def _forget(self, ref: SessionRef, seen: float) -> None:
        """Delete a session whose retention is over, after writing its export if one is due.

        A resume removes the message, at any moment until the session is deleted.
        """
        fields = self._store.fields(ref)
        if "status" not in fields or self._store.errand_score(f"forget|{ref.member}") != seen:
            return
        if fields.get("export"):
            try:
                keep(self._engine.queries.export(ref.id), self._engine.settings.export_dir)
            except ExportOwed as error:
                if self._engine.settings.export_dir is not None:
                    self._store.fleet().record_owed_export(ref.id, error.why)
                raise
        seen_as = Seen(fields["status"], int(fields["updated"]))
        self._deletion.delete(ref.id, expired=True, seen=seen_as)

    def _follow_parent(self, child: SessionRef, verb: Control) -> None:
        """Stop, resume or abort a child with its parent, unless either has changed since."""
        fields = self._store.fields(child)
        parent = json.loads(fields.get("parent") or "{}")
        reason = json.loads(fields.get("reason") or "{}")
        if verb == "resume" and reason.get("text") != PARENT_DID:
            return  # a user stopped it, and may resume it
        if not parent:
            return  # it was detached since: nothing that was queued for it as a child happens
        if verb == "abort":
            self._control.abort_below(child)
            return
        self._control.follow(child, verb, SessionRef(parent["session"], child.root), _WANTED[verb])


def keep(export: ExportView, folder: Path | None) -> Path:
    """Writes a session's export and ledger to files; returns the export's path. Raises ExportOwed.

    It is called before the session is deleted. Repeating it writes the same two files. The name
    contains the creation time, because a session id may be reused.
    """
    session = export.session
    if folder is None:
        raise ExportOwed(session.id, "this process has no LEADHAND_EXPORT_DIR; another may")
    made = datetime.fromisoformat(session.created_at)
    day = folder / made.date().isoformat()
    name = f"{session.id}-{round(made.timestamp() * 1000)}"
    ledger = "".join(f"{entry.model_dump_json()}\n" for entry in export.ledger)
    try:
        day.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(day / f"{name}.ledger.jsonl", ledger)
        _write(day / f"{name}.json", export.model_dump_json())
        for above in (day, folder):
            _sync(above)
    except OSError as error:
        raise ExportOwed(session.id, f"{folder}: {error.strerror or error}") from error
    return day / f"{name}.json"


def _write(file: Path, text: str) -> None:
    """Write a file atomically, readable by this user only."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    opened = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as output:
        output.write(text)
        output.flush()
        os.fsync(output.fileno())
    unfinished.replace(file)


def _sync(folder: Path) -> None:
    """Fsync a folder, which makes the names in it durable."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
