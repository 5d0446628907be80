"""Writes the exports of sessions that are about to be deleted, atomically and fsynced."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from app.errors import ExportOwed
from leadhand.models.views import ExportView


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
