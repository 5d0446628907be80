"""Finds the stacks of a project whose folder was renamed, moved or copied.

The folder of JSON files has the path and host of the stack that they belong to.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from leadhand.client.client import Client
from leadhand.errors import LeadhandError
from leadhand.models.stacks import folder_stack, moved_name
from leadhand.stack.scope import Scope

_ORIGIN = ".stack"


class Origin(NamedTuple):
    """The folder whose stack the files belong to, and its host."""

    folder: str
    place: str
    #: The folder where the file system of `folder` is mounted.
    mount: str = "/"


def write_origin(files: Path, scope: Scope) -> None:
    """Record to which folder's stack the files belong. Raises OSError."""
    if scope.folder is None or scope.place is None:
        return
    wanted = Origin(scope.folder, scope.place, _mount_of(Path(scope.folder)))
    if read_origin(files) == wanted:
        return
    draft = files / f"{_ORIGIN}.new"
    draft.write_text(json.dumps(wanted._asdict()) + "\n", encoding="utf-8")
    draft.replace(files / _ORIGIN)


def read_origin(files: Path) -> Origin | None:
    """Return to which folder's stack the files belong; None if that is not known."""
    try:
        found = json.loads((files / _ORIGIN).read_bytes())
        return Origin(str(found["folder"]), str(found["place"]), str(found["mount"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def adopt_stacks(client: Client, files: Path, scope: Scope) -> str | None:
    """Move the stacks of the folder's former path here if that is gone.

    Returns a sentence if the files belong to the stack of another folder, and stay there.
    """
    origin = read_origin(files)
    if origin is None or scope.folder is None or origin[:2] == (scope.folder, scope.place):
        return None
    command = f"`leadhand stack move {origin.folder}` moves it here"
    if origin.place != scope.place:
        return f"the files belong to the stack of {origin.folder} on the host {origin.place}"
    if not os.path.ismount(origin.mount):
        why = f"{origin.mount}, where that is, is not mounted"
        return f"the files belong to the stack of {origin.folder}, and {why}; {command}"
    if not _is_gone(Path(origin.folder)):
        return f"this is a copy of {origin.folder}, to whose stack the files belong; {command}"
    try:
        move_stacks(client, origin, scope)
        write_origin(files, scope)
    except (LeadhandError, OSError) as error:
        return f"the files belong to the stack of {origin.folder}, which is gone: {error}"
    return None


def move_stacks(client: Client, origin: Origin, scope: Scope) -> int:
    """Move the stack of a folder, and those of agent sessions beside it, to another folder.

    Returns how many were moved. Raises StackRefused if the other folder has one already.
    """
    old, new = (folder_stack(*one) for one in ((origin.place, origin.folder), _home(scope)))
    found: list[tuple[str, str]] = []
    cursor = None
    while True:
        page = client.stacks(limit=100, cursor=cursor)
        names = ((head.name, moved_name(head.name, old, new)) for head in page.items)
        found += [(name, to) for name, to in names if to is not None]
        cursor = page.next
        if cursor is None:
            break
    for name, to in sorted(found):
        client.move_stack(name, to, folder=scope.folder, place=scope.place)
    return len(found)


def _mount_of(folder: Path) -> str:
    """The folder where a folder's file system is mounted."""
    return str(next(above for above in (folder, *folder.parents) if os.path.ismount(above)))


def _is_gone(folder: Path) -> bool:
    """Whether there is no such path; one that cannot be read is there."""
    try:
        folder.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _home(scope: Scope) -> tuple[str, str]:
    return str(scope.place), str(scope.folder)
