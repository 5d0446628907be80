"""The configuration files of projects whose commands the user has approved, by digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from leadhand.cli.approvals import approved_digest, why_unapproved
from leadhand.cli.guards.config import Loaded
from leadhand.local import user_state
from leadhand.models.approvals import digest_of
from leadhand.models.toml_file import TomlUnreadable, read_text


def is_trusted(loaded: Loaded, env: Mapping[str, str]) -> bool:
    """Whether a guard's commands may run: the project's file is approved as it is now."""
    return _why_unapproved(loaded, env) is None


def lost_guard(loaded: Loaded, env: Mapping[str, str]) -> Path | None:
    """Returns an approved file whose [guard] section was removed since; None if there is none.

    One that was approved as it is now may have no [guard].
    """
    approved = ((file, approved_digest(file, env)) for file in loaded.without)
    changed = (file for file, digest in approved if digest not in (None, _digest_now(file)))
    return next(changed, None)


def why_unchecked(loaded: Loaded, env: Mapping[str, str]) -> str | None:
    """Returns why the gates may not run before a stop; None if they may."""
    lost = lost_guard(loaded, env)
    if lost is not None:
        hint = "put it back, or run `leadhand hook trust` if agents may stop without it"
        return f"{lost} was approved and has no [guard] any more; {hint}"
    why = _why_unapproved(loaded, env)
    return why and f"{why}; look at it, then run `leadhand hook trust`"


def missed_file(agent_session: str, env: Mapping[str, str]) -> Path:
    """Returns the path of the file that records an agent's stops while the API was unreachable."""
    return user_state.hooks_folder(env) / f"missed-{agent_session.replace(':', '_')}.txt"


def _why_unapproved(loaded: Loaded, env: Mapping[str, str]) -> str | None:
    if loaded.is_own or loaded.file is None:
        return None
    return why_unapproved(loaded.file, loaded.text, env)


def _digest_now(file: Path) -> str | None:
    """The digest of a file's text; None without the file."""
    try:
        return digest_of(read_text(file)) if file.exists() else None
    except TomlUnreadable:
        return None
