"""The folder of a request, whose definitions of agents, flows and tools apply.

See decisions: security.
"""

from __future__ import annotations

import os
from urllib.parse import unquote_to_bytes

from flask import request

from api.auth import current_caller, may_bring_commands
from app.engine import Engine
from app.sessions.drafts import FolderDefinitions
from leadhand.contract.fleet import LONGEST, FolderQuery
from leadhand.errors import Malformed, TokenRefused
from leadhand.models.folder_settings import FOLDER_HEADER


def folder_of_command() -> str:
    """Returns the folder that a request's header names; '' if it has none. Raises Refused."""
    given = request.headers.get(FOLDER_HEADER, "")
    folder = os.fsdecode(unquote_to_bytes(given))
    if given and (not folder.startswith("/") or "\0" in folder or len(folder) > LONGEST):
        hint = "give an absolute path, percent-encoded, or leave it out"
        raise Malformed(f"the {FOLDER_HEADER} cannot be used", field=FOLDER_HEADER, hint=hint)
    return folder


def found_here(
    engine: Engine, asked: FolderQuery | None = None, *, default: str = ""
) -> FolderDefinitions:
    """Returns the agents and tools that apply to a request: those of its folder or its session.

    A request that names neither is about the folder `default`; one of a body is always about its
    session. Raises Refused for a body that names another folder.
    """
    caller, definitions = current_caller(), engine.submit.definitions
    if caller is not None:
        found = definitions.of_session(engine.registry.ref(caller.session))
        if asked is not None and asked.folder not in (None, found.folder):
            hint = "leave folder out: a body has what its session has"
            raise TokenRefused(f"the token is for session {caller.session!r} only", hint=hint)
        return found
    folder = (asked and asked.folder) or folder_of_command()
    return definitions.of_folder(folder or default, free=may_bring_commands(engine))
