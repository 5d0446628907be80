"""Reads a folder's place and branches in its repository, if this process sees it. Runs no git."""

from __future__ import annotations

from pathlib import Path

from leadhand.models.git_tracking import repository_top


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
