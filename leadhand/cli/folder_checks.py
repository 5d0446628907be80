"""The checks of `leadhand doctor` that compare the folders of sessions with the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from leadhand.cli.finding import Finding
from leadhand.client.client import Client
from leadhand.errors import Refused, SessionUnknown
from leadhand.models.problems import Kind
from leadhand.models.text import plain

#: The most sessions that are looked up, and the most that are listed.
_LOOKUPS, _LISTED = 200, 200


def folder_findings(root: Path, folder: Path, client: Client) -> Iterator[Finding]:
    """Yields a warning for each folder in `root` without a session, and session without its folder.

    Installations of one user may share `root`: only folders are looked at that were made from one
    in `folder`.
    """
    recorded = _recorded(root, folder)
    for session in list(recorded)[:_LOOKUPS]:
        if _is_deleted(session, client):
            yield from (_left(path, session) for path in recorded[session])
    page = client.sessions(limit=_LISTED)
    for session in page.damaged:
        text = f"a key of session {plain(session)} in Redis has a wrong type"
        yield Finding("fail", "store", text, Kind.KEY_DAMAGED.hint or "")
    for view in page.items:
        own = view.worktree
        if own is None or own.kind is None or own.cleaned:
            continue
        path = Path(own.folder)
        is_here = path.is_relative_to(root) and Path(own.origin).is_relative_to(folder)
        if is_here and not path.exists():
            text = f"{plain(own.folder)} of session {plain(view.id)} is gone"
            mend = f"leadhand worktree clean {plain(view.id)} --force"
            yield Finding("warn", "worktree", text, mend)


def _is_deleted(session: str, client: Client) -> bool:
    try:
        client.session(session)
    except SessionUnknown:
        return True
    except Refused as error:
        if Kind.of(error.problem.type) is not Kind.KEY_DAMAGED:
            raise
    return False


def _left(path: Path, session: str) -> Finding:
    text = f"{plain(str(path))} is of session {plain(session)}, which the store does not have"
    mend = (
        "take out of it what you need, then remove it and the files beside it; in a repository"
        " `git worktree prune` follows"
    )
    return Finding("warn", "worktree", text, mend)


def _recorded(root: Path, folder: Path) -> dict[str, list[Path]]:
    """The folders of each session that were made from a folder in `folder`, by their records."""
    found: dict[str, list[Path]] = {}
    for file in sorted(root.glob("*/*/*.json")):
        try:
            record = json.loads(file.read_bytes())
            session, origin = str(record["session"]), Path(record["origin"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if session and origin.is_relative_to(folder):
            found.setdefault(session, []).append(file.with_suffix(""))
    return found
