"""Copies a folder that is no repository, for one task; refused above LEADHAND_COPY_MAX."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from workers.workspaces.git import Cancelled, WorkspaceRefused
from workers.workspaces.layout import Record, read_record, write_record

_DRAFT = ".draft"
_INSTEAD = "a copy per task; make it a git repository, or give `workspace: shared`"


def make_copy(
    path: Path,
    record: Record,
    *,
    most: int,
    cancel: threading.Event,
    deadline: float,
    on_copied: Callable[[Path], None] = lambda _: None,
    instead: str = _INSTEAD,
) -> Record:
    """Copy the original folder to `path`, unless that is done, and return the copy's record.

    Raises WorkspaceRefused, Cancelled.

    `on_copied` is called with the complete copy, before any session can work in it. `instead` says
    what to do where the folder is too large.
    """
    known = read_record(path)
    if known is not None and known.ready and path.is_dir():
        return known
    if known is None and path.exists():
        raise WorkspaceRefused(f"{str(path)!r} is in the way; move it elsewhere")
    origin = Path(record.origin)
    check_size(origin, most, instead)
    write_record(path, record)
    draft = path.with_name(f"{path.name}{_DRAFT}")
    for unfinished in (draft, path):  # never complete, so that no session has worked there
        if unfinished.exists():
            shutil.rmtree(unfinished)
    try:
        _copy(origin, draft / record.prefix, cancel, deadline)
        on_copied(draft / record.prefix)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise WorkspaceRefused(f"{record.origin!r} cannot be copied: {error}") from None
    draft.rename(path)
    record = record.model_copy(update={"ready": True})
    write_record(path, record)
    return record


def check_size(origin: Path, most: int, instead: str = _INSTEAD) -> None:
    """Raises WorkspaceRefused for a folder with more than `most` bytes."""
    left = most
    for path in files_in(origin):
        try:
            left -= path.lstat().st_size
        except FileNotFoundError:
            continue
        if left < 0:
            raise WorkspaceRefused(
                f"{str(origin)!r} has more than {most:,} bytes (LEADHAND_COPY_MAX), too much for"
                f" {instead}"
            )


def _copy(origin: Path, draft: Path, cancel: threading.Event, deadline: float) -> None:
    def copy_file(source: str, target: str) -> str:
        if cancel.is_set():
            raise Cancelled
        if time.monotonic() > deadline:
            raise OSError("it took too long")
        shutil.copy2(source, target, follow_symlinks=False)
        return target

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if _is_special(Path(folder, name))}

    draft.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(origin, draft, symlinks=True, ignore=left_out, copy_function=copy_file)


def _is_special(path: Path) -> bool:
    """Whether it is a socket, a pipe or a device, which has no content to copy."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return True
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def empty_folders_in(folder: Path) -> Iterator[Path]:
    """Yields all folders below a folder that hold nothing."""
    for above, names, files in os.walk(folder):
        if not names and not files and Path(above) != folder:
            yield Path(above)


def files_in(folder: Path) -> Iterator[Path]:
    """Yields all files and links in a folder."""
    for above, names, files in os.walk(folder):
        links = [name for name in names if Path(above, name).is_symlink()]
        yield from (Path(above, name) for name in (*files, *links))
