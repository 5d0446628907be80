"""The files that the user has approved for commands: guards, worktrees, definitions of folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from leadhand.cli.guards.config import Loaded
from leadhand.local import user_state
from leadhand.models.approvals import (
    FOREIGN,
    MOST_TEXTS,
    approval_key,
    digest_of,
    is_approved,
    is_foreign,
    read_approvals,
)
from leadhand.models.folder_settings import TomlUnreadable, read_text


def approved_digest(file: Path, env: Mapping[str, str]) -> str | None:
    """Returns the digest of the text that the user approved last; None if the file is not."""
    known = read_approvals(user_state.approvals_file(env)).get(approval_key(file), [])
    return known[0] if known else None


def why_unapproved(file: Path, text: str, env: Mapping[str, str]) -> str | None:
    """Returns why the commands in this text of a project's file may not run; None if they may.

    Raises UserStateUnfit.
    """
    if is_foreign(file):
        return f"{file} {FOREIGN}"
    if is_approved(user_state.approvals_file(env), file, digest_of(text)):
        return None
    return f"{file} is not approved as it is now"


def show_whole(texts: Mapping[Path, str]) -> None:
    """Prints what is to be approved, whole: a file can hide nothing in a line that is not shown."""
    from leadhand.models.text import escape_controls

    for file, text in texts.items():
        click.echo(f"{file}:")
        for line in text.splitlines():
            click.echo(f"  {escape_controls(line)}")


def approve(digests: Mapping[Path, str], env: Mapping[str, str]) -> None:
    """Records that the user approves each file with the text of this digest.

    Raises UserStateUnfit, and ClickException in a body and for a file of another user.
    """
    _require_person(env)
    for file in filter(is_foreign, digests):
        raise click.ClickException(f"nothing was approved: {file} {FOREIGN}")
    store = user_state.approvals_file(env)
    known = read_approvals(store)
    for file, digest in digests.items():
        earlier = [one for one in known.get(approval_key(file), ()) if one != digest]
        known[approval_key(file)] = [digest, *earlier][:MOST_TEXTS]
    _write(store, known)


def withdraw(file: Path, env: Mapping[str, str]) -> bool:
    """Deletes the approval of a file; false if there was none.

    Raises UserStateUnfit, and ClickException in a body.
    """
    _require_person(env)
    store, key = user_state.approvals_file(env), approval_key(file)
    before = read_approvals(store)
    if key not in before:
        return False
    _write(store, {name: digest for name, digest in before.items() if name != key})
    return True


def _require_person(env: Mapping[str, str]) -> None:
    """Raises ClickException in a doer or checker: an agent must not approve what it reads of."""
    if env.get("LEADHAND_SESSION"):
        hint = "inside a session nothing is approved; ask its user to run this in a shell"
        raise click.ClickException(hint)


def _write(store: Path, digests: Mapping[str, list[str]]) -> None:
    with user_state.usable(store):
        user_state.write_fields(store, digests)


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
