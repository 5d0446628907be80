"""The files that the user has approved for commands: guards, and definitions of folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from leadhand.local import state_dir, user_state
from leadhand.models.approvals import approval_key, read_approvals


def approved_digest(file: Path, env: Mapping[str, str]) -> str | None:
    """Returns the digest of the text with which the user approved a file; None if not approved."""
    return read_approvals(user_state.approvals_file(env)).get(approval_key(file))


def approve(digests: Mapping[Path, str], env: Mapping[str, str]) -> None:
    """Records that the user approves each file with the text of this digest.

    Raises UserStateUnfit.
    """
    store = user_state.approvals_file(env)
    new = {approval_key(file): digest for file, digest in digests.items()}
    _write(store, read_approvals(store) | new)


def withdraw(file: Path, env: Mapping[str, str]) -> bool:
    """Deletes the approval of a file; false if there was none. Raises UserStateUnfit."""
    store, key = user_state.approvals_file(env), approval_key(file)
    before = read_approvals(store)
    if key not in before:
        return False
    _write(store, {name: digest for name, digest in before.items() if name != key})
    return True


def _write(store: Path, digests: Mapping[str, str]) -> None:
    with user_state.usable(store):
        state_dir.write_fields(store, digests)
