"""Where the exports of sessions that go are written: whole or not at all, and on the disk."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from app.errors import ExportOwed
from app.views import ExportView


def keep(export: ExportView, folder: Path | None) -> Path:
    """Write a session's export, and its ledger beside it as JSON Lines. Raises ExportOwed.

    The same session again is the same two files; another one with its id has another time.
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
    """All of it under its name, or nothing; nobody else reads it."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    opened = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as written:
        written.write(text)
        written.flush()
        os.fsync(written.fileno())
    unfinished.replace(file)


def _sync(folder: Path) -> None:
    """A name is on the disk when its folder is."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
