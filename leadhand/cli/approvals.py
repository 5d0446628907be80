"""The files that the user has approved for commands: guards, worktrees, definitions of folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from leadhand.local import state_dir, user_state
from leadhand.models.approvals import (
    FOREIGN,
    MOST_TEXTS,
    approval_key,
    digest_of,
    is_approved,
    is_foreign,
    read_approvals,
)


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
        state_dir.write_fields(store, digests)
