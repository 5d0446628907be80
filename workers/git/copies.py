"""Copies a folder that is no repository, for one task; refused above LEADHAND_COPY_MAX.

A file is brought back only while the original is as it was when it was copied. One file that is
not, is a conflict: then nothing is changed. Empty folders are made and removed alike; their names
end with a slash. All new contents are written beside their
targets before the first one is put in its place, so that a full disk changes nothing either.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from workers.git.git import Cancelled, WorkspaceRefused
from workers.git.layout import Record, read_record, write_record

_DRAFT = ".draft"
_INSTEAD = "a copy per task; make it a git repository, or give `workspace: shared`"
#: Names in an error.
_SHOWN = 10
_PART = ".leadhand-draft-"
_BLOCK = 1 << 20
#: The end of a folder's name, and the text in place of its digest.
_SLASH, _FOLDER = "/", "folder"


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


class Changes(NamedTuple):
    """What is to be done in the original, by path within the folder."""

    written: tuple[str, ...]
    removed: tuple[str, ...]


def digests_file(path: Path) -> Path:
    """Returns the path of the file beside a copy that has the digests of its original files."""
    return path.with_name(f"{path.name}.digests")


def write_digests(path: Path, copy: Path) -> None:
    """Records the digest of each file of a complete copy, next to the copy."""
    file = digests_file(path)
    draft = file.with_name(f"{file.name}.draft")
    draft.write_text(json.dumps(_digests(copy)))
    draft.replace(file)


def apply_copy(path: Path, copy: Path, origin: Path) -> Changes:
    """Applies a copy's changes to the original; raises WorkspaceRefused if that changed there too.

    May be repeated after a kill at any point: a file that is there already counts as done.
    """
    changes = _changes(path, copy, origin)
    drafts: dict[str, Path] = {}
    made: list[Path] = []
    try:
        for name in changes.written:
            if name.endswith(_SLASH):
                _make_folders(origin / name, made)
                shutil.copymode(copy / name, origin / name)
            else:
                drafts[name] = _draft(copy / name, origin / name, made)
        _refuse_changed(path, origin, (*changes.written, *changes.removed))
    except OSError as error:
        _withdraw(drafts, made)
        raise WorkspaceRefused(f"nothing was changed in {str(origin)!r}: {error}") from None
    except WorkspaceRefused:  # the user saved a file in the meantime
        _withdraw(drafts, made)
        raise
    for name, draft in drafts.items():
        draft.replace(origin / name)
    for name in changes.removed:
        if not name.endswith(_SLASH):
            (origin / name).unlink(missing_ok=True)
        _remove_empty(origin / name, origin, copy)
    return changes


def is_unchanged(path: Path, copy: Path, origin: Path) -> bool:
    """Whether a copy has no changes that the original lacks, removals included."""
    now, known = _digests(copy), _read_digests(path)
    if known is None:
        return False
    touched = _touched(known, now, copy)
    return all(_digest_below(origin, name) == now.get(name) for name in touched)


def _withdraw(drafts: Mapping[str, Path], made: list[Path]) -> None:
    """Remove the drafts, and the folders that were made for them."""
    for draft in drafts.values():
        draft.unlink(missing_ok=True)
    for folder in reversed(made):
        with suppress(OSError):
            folder.rmdir()


def _refuse_changed(path: Path, origin: Path, names: tuple[str, ...]) -> None:
    """Raises WorkspaceRefused if an original is no longer as it was when it was copied."""
    known = _read_digests(path) or {}
    files = (name for name in names if not name.endswith(_SLASH))
    changed = [name for name in files if _digest_below(origin, name) != known.get(name)]
    if changed:
        raise WorkspaceRefused(_conflict(origin, sorted(changed)))


def _read_digests(path: Path) -> dict[str, str] | None:
    """The digests of the files when they were copied; None if they cannot be read."""
    try:
        known: dict[str, str] = json.loads(digests_file(path).read_text())
    except (OSError, ValueError):
        return None
    return known


def _touched(known: Mapping[str, str], now: Mapping[str, str], copy: Path) -> list[str]:
    names = sorted(name for name in {*known, *now} if known.get(name) != now.get(name))
    # A folder that is no longer empty is no change: what is in it is.
    return [one for one in names if one in now or one[-1] != _SLASH or not (copy / one).is_dir()]


def _changes(path: Path, copy: Path, origin: Path) -> Changes:
    """What the copy changed. Raises WorkspaceRefused if the original has changed there too."""
    known = _read_digests(path)
    if known is None:
        what = f"the digests of {str(copy)!r} cannot be read, so that its changes are not known"
        raise WorkspaceRefused(f"{what}; bring them over yourself")
    now = _digests(copy)
    touched = _touched(known, now, copy)
    conflicts: list[str] = []
    open_: list[str] = []
    for name in touched:
        theirs = _digest_below(origin, name)
        if theirs == now.get(name):
            continue
        (open_ if theirs == known.get(name) else conflicts).append(name)
    if conflicts:
        raise WorkspaceRefused(_conflict(origin, conflicts))
    return Changes(
        tuple(name for name in open_ if name in now),
        tuple(name for name in open_ if name not in now),
    )


def _conflict(origin: Path, names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    listed = ", ".join(names[:_SHOWN])
    return (
        f"nothing was changed: {listed}{more} changed in {str(origin)!r} since the copy was made;"
        " bring these over yourself, or put them back as they were"
    )


def _digests(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in files_in(folder):
        digest = _digest(file)
        if digest is not None:
            found[str(file.relative_to(folder))] = digest
    for empty in empty_folders_in(folder):
        found[f"{empty.relative_to(folder)}{_SLASH}"] = _FOLDER
    return found


def _digest_below(origin: Path, name: str) -> str | None:
    """The digest of a file of the original; None if there is none.

    A path through a link or a file is no part of the copied folder: nothing is written through it.
    """
    above = origin
    for part in Path(name).parts[:-1]:
        above = above / part
        if above.is_symlink() or (above.exists() and not above.is_dir()):
            return "in the way"
    path = origin / name
    if name.endswith(_SLASH) and path.is_dir() and not path.is_symlink():
        return _FOLDER
    return _digest(path)


def _digest(file: Path) -> str | None:
    """Names the content of a file: its bytes and whether it may be run, or where a link leads."""
    try:
        mode = file.lstat().st_mode
        if stat.S_ISLNK(mode):
            return f"link {file.readlink()}"
        if not stat.S_ISREG(mode):
            return "in the way"
        whole = hashlib.sha256()
        with file.open("rb") as opened:
            while block := opened.read(_BLOCK):
                whole.update(block)
    except FileNotFoundError:
        return None
    return f"{whole.hexdigest()}{' x' if mode & stat.S_IXUSR else ''}"


def _draft(source: Path, target: Path, made: list[Path]) -> Path:
    """Write a copy of a file beside its target; the folders made for it are added to `made`."""
    _make_folders(target.parent, made)
    # The same name each time: what a killed attempt left is replaced by the next.
    draft = target.with_name(_PART + hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16])
    draft.unlink(missing_ok=True)
    try:
        if source.is_symlink():
            draft.symlink_to(source.readlink())
        else:
            shutil.copy2(source, draft)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return draft


def _make_folders(folder: Path, made: list[Path]) -> None:
    """Make a folder and those above it, and add the new ones to `made`."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir()
        made.append(one)


def _remove_empty(removed: Path, origin: Path, copy: Path) -> None:
    """Remove a folder, or those above a file, while they are empty and the copy lacks them."""
    folder = removed if removed.is_dir() else removed.parent
    while folder != origin and not (copy / folder.relative_to(origin)).is_dir():
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
