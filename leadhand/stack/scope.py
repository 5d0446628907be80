"""Which stack a folder has: one by host and real path, or one with a name."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import NamedTuple

from leadhand.models.patterns import AGENT_SESSION, NAME, form_of
from leadhand.models.stacks import agent_stack, folder_stack, place_of_host
from leadhand.settings import ClientSettings


class Scope(NamedTuple):
    """The name of a stack; of a folder's stack, also the folder and the host that has it."""

    stack: str
    folder: str | None = None
    place: str | None = None


def find_scope(folder: Path, name: str | None = None, *, agent_session: str | None = None) -> Scope:
    """Returns the stack of a folder, or the one with this name. Raises ValueError.

    With `agent_session` it is the one that this session of an agent has beside that.
    """
    if agent_session is not None:
        if not re.fullmatch(AGENT_SESSION, agent_session):
            raise ValueError(
                f"{agent_session[:80]!r} is no agent session; give {form_of(AGENT_SESSION)}"
            )
        found = find_scope(folder, name)
        return found._replace(stack=agent_stack(found.stack, agent_session))
    if name is not None:
        if not re.fullmatch(NAME, name):
            raise ValueError(f"{name[:80]!r} cannot name a stack; give {form_of(NAME)}")
        return Scope(name)
    place, path = _place(), str(folder.resolve())
    return Scope(folder_stack(place, path), path, place)


def _place() -> str:
    """LEADHAND_PLACE, or else the name of the host, in the form of a place's name."""
    named = ClientSettings.from_env().place
    return named if named is not None else place_of_host(socket.gethostname())
