"""The configuration files of projects whose commands the user has approved, by digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from leadhand.cli.approvals import approved_digest
from leadhand.cli.guards.config import Loaded
from leadhand.local import user_state


def is_trusted(loaded: Loaded, env: Mapping[str, str]) -> bool:
    """Whether a guard's commands may run: the project's file is approved as it is now."""
    if loaded.is_own or loaded.file is None:
        return True
    return approved_digest(loaded.file, env) == loaded.digest


def lost_guard(loaded: Loaded, env: Mapping[str, str]) -> Path | None:
    """Returns an approved file whose [guard] section was removed since; None if there is none."""
    files = loaded.without
    return next((file for file in files if approved_digest(file, env) is not None), None)


def why_unchecked(loaded: Loaded, env: Mapping[str, str]) -> str | None:
    """Returns why the gates may not run before a stop; None if they may."""
    lost = lost_guard(loaded, env)
    if lost is not None:
        hint = "put it back, or run `leadhand hook trust` if agents may stop without it"
        return f"{lost} was approved and has no [guard] any more; {hint}"
    if not is_trusted(loaded, env):
        hint = "look at it, then run `leadhand hook trust`"
        return f"{loaded.file} is not approved as it is now; {hint}"
    return None


def missed_file(agent_session: str, env: Mapping[str, str]) -> Path:
    """Returns the path of the file that records an agent's stops while the API was unreachable."""
    return user_state.hooks_folder(env) / f"missed-{agent_session.replace(':', '_')}.txt"
