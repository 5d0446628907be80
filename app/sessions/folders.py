"""Derives the folder that a session has to itself from its document."""

from __future__ import annotations

import json
from pathlib import Path

from app.core.folders import RESERVED, OwnFolder
from app.errors import InvalidDocument
from app.redaction import without_keys
from app.settings import Settings
from leadhand.flows.documents import AnyDocument
from leadhand.graphs.documents import GraphDocument
from leadhand.models.documents import (
    LoopDocument,
    PhaseDocument,
    WorkflowDocument,
    WorktreeOptions,
)
from leadhand.models.git_settings import repository_top
from leadhand.models.plans import PlanDocument

#: The most characters of a commit's subject, as git's own tools show them.
SUBJECT = 72


def own_folder(
    document: AnyDocument, settings: Settings, *, is_task: bool = False
) -> OwnFolder | None:
    """Computes the folder that a session has to itself; None if its document does not ask for one.

    Raises InvalidDocument for a document without a folder to start from, and for checkers that
    need a folder of its own. A plan's task has one.
    """
    if isinstance(document, PlanDocument | GraphDocument) or not document.worktree:
        if not is_task:
            _refuse_isolated(document)
        return None
    if document.cwd is None:
        raise InvalidDocument("worktree", True, "name the folder to start from in cwd")
    if has_branch(document.cwd, RESERVED):
        hint = f"the branch {RESERVED!r} is in the way of branches named {RESERVED}/ID; rename it"
        raise InvalidDocument("worktree", True, f"{hint} (git branch -m {RESERVED} OTHER)")
    own = own_folder_from(document.cwd, settings)
    asked = document.worktree
    if not isinstance(asked, WorktreeOptions):
        return own
    return own._replace(copy_files=asked.copy_files, prepare=asked.prepare or "")


def _refuse_isolated(document: AnyDocument) -> None:
    loops = document.phases if isinstance(document, WorkflowDocument) else (document,)
    for number, loop in enumerate(loops):
        if not isinstance(loop, (LoopDocument, PhaseDocument)):
            return
        where = f"phases[{number}].checkers" if isinstance(loop, PhaseDocument) else "checkers"
        for index, checker in enumerate(loop.checkers):
            if checker.isolated:
                hint = (
                    "what other checkers change is put back in a worktree or copy of the session's"
                    " own only; give `worktree: true`, or `clean` in place of isolated"
                )
                raise InvalidDocument(f"{where}[{index}].isolated", True, hint)


def commit_subject(document: AnyDocument, label: str) -> str:
    """Returns the subject of the commit with a session's work: its label, or its task's first line.

    It is empty for documents that have neither.
    """
    if label or not isinstance(document, LoopDocument):
        return label
    lines = (line.strip().lstrip("#*- ") for line in document.task.splitlines())
    first = without_keys(next((line for line in lines if line), ""))
    return first if len(first) <= SUBJECT else f"{first[: SUBJECT - 1].rstrip()}…"


def own_folder_from(origin: str, settings: Settings) -> OwnFolder:
    """Computes the folder that a session which is started in a folder would have to itself."""
    return OwnFolder(worktrees_of(settings), origin, prefix_in_repository(origin))


def worktrees_of(settings: Settings) -> str:
    """Returns the real path of the folder of all worktrees, as sessions record it."""
    return str(settings.worktrees_root.resolve())


def own_facts(session: str, own: OwnFolder | None) -> str:
    """Serializes the original and planned path of a session's own folder as JSON; '' for None."""
    if own is None:
        return ""
    return json.dumps({"origin": own.origin, "folder": own.path(session)})


def prefix_in_repository(folder: str) -> str:
    """Returns a folder's path relative to the top of its git repository; '' at the top, or if none.

    The worker checks it: this process may be on another machine, where the folder is unknown.
    """
    here = Path(folder)
    try:
        top = repository_top(here)
    except OSError:
        return ""
    return "" if top in (None, here) else str(here.relative_to(top))


def has_branch(folder: str, name: str) -> bool:
    """Whether a folder's repository has a branch, as far as its files show that."""
    ref = f"refs/heads/{name}"
    try:
        top = repository_top(Path(folder))
        if top is None:
            return False
        found = top / ".git"
        common = found if found.is_dir() else _common_of(found)
        packed = common / "packed-refs"
        lines = packed.read_text(errors="replace").splitlines() if packed.is_file() else []
        return (common / ref).is_file() or any(line.endswith(f" {ref}") for line in lines)
    except OSError:
        return False


def _common_of(file: Path) -> Path:
    """The directory that all worktrees share, from the file `.git` of a linked one."""
    own = file.parent / file.read_text().removeprefix("gitdir:").strip()
    common = own / "commondir"
    return own / common.read_text().strip() if common.is_file() else own
