"""Which stacks a body may use: those of its session's folder, and those that its session made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from flask import request

from api import requests
from api.auth import current_caller
from api.problem_types import forbidden
from app.engine import Engine
from app.store.stacks import StackReads
from leadhand.models.stacks import folder_stack, place_of_host

#: How the name of a folder's stack begins.
_OF_FOLDER = re.compile(r"^folder-[0-9a-f]{16}")


class StackRights:
    """Checks the names of stacks in a body's requests; others may use all."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.store.part(StackReads)

    def check(self, stack: str) -> None:
        """Raises Refused unless the request's caller may use the stack of this name."""
        caller = current_caller()
        if caller is None:
            return
        head = self._reads.heads([stack])[0][0]
        of_folder = _OF_FOLDER.match(stack)
        if of_folder is None:
            # One that is unused becomes the session's own by its first change.
            allowed = not head or head.get("made_by") == caller.session
        else:
            # Otherwise a body could make the stack of another folder before that has one.
            allowed = self._is_of_its_folder(caller.session, of_folder[0], head)
        if not allowed:
            what = f"stack {stack!r} is not of the folder of session {caller.session!r}"
            hint = "use the stack of the session's folder, or a new one with another name"
            raise forbidden(f"{what}, and the session has not made it", hint=hint)

    def _is_of_its_folder(self, session: str, stack: str, head: dict[str, str]) -> bool:
        """Whether a stack is that of a session's working folder, or of one beneath it."""
        ref = self._engine.registry.ref(session)
        fields = self._engine.store.values(ref, "session", ["cwd", "place"])
        cwd, place = fields.get("cwd", ""), fields.get("place", "")
        if not cwd:
            return False
        hosts = (one.host for one in self._engine.fleet.inventories() if one.place == place)
        places = {place, *map(place_of_host, hosts)}
        folders = {cwd, os.path.realpath(cwd)}
        named = [(folder, one) for folder in folders for one in places]
        named += [
            (folder, one)
            for folder, one in ((head.get("folder"), head.get("place")), *_of_start())
            if folder and one in places and any(_is_within(folder, above) for above in folders)
        ]
        return any(folder_stack(one, folder) == stack for folder, one in named if one)


def owner_of(stack: str) -> str | None:
    """Returns the session that has to have made a stack for this request; None if none has to."""
    caller = current_caller()
    return None if caller is None or _OF_FOLDER.match(stack) else caller.session


def _of_start() -> Iterator[tuple[str | None, str | None]]:
    """The folder and place that a request to start a workflow session gives its stack."""
    given = requests.value() if request.endpoint == "stacks.start" else None
    if isinstance(given, dict):
        folder, place = given.get("folder"), given.get("place")
        if isinstance(folder, str) and isinstance(place, str):
            yield folder, place


def _is_within(folder: str, above: str) -> bool:
    path = PurePosixPath(folder)
    return path.is_relative_to(above) and ".." not in path.parts
