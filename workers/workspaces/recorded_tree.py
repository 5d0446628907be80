"""Commits the recorded tree of a worktree: its files as a doer left them, whatever is there now."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from workers.workspaces.git import Git, identity
from workers.workspaces.layout import read_record, write_record
from workers.workspaces.repository import is_ancestor
from workers.workspaces.worktrees import keep

#: The modes of files in a tree, and of other repositories.
_FILES, _GITLINK = ("100644", "100755"), "160000"
_NULL = "0" * 40


class Work(NamedTuple):
    """The work of a session as its last doer left it."""

    tree: str
    #: The folder of snapshots that has what the repository does not have of the tree.
    objects: Path


def keep_work(git: Git, path: Path, work: Work | None, message: str) -> str:
    """Commits the work of an accepted session, and records that it was accepted.

    Without `work`, the worktree is committed as it is. Returns the newest commit of the branch.
    Raises GitFailed.
    """
    commit = keep(git, path, message) if work is None else commit_tree(git, path, work, message)
    record = read_record(path)
    if record is not None:
        write_record(path, record.model_copy(update={"accepted": True}))
    return commit


class _Change(NamedTuple):
    """An entry in which a tree differs from another one."""

    mode: str
    id: str
    path: str
    #: The mode and id of the other tree.
    old_mode: str
    old_id: str


def commit_tree(git: Git, path: Path, work: Work, message: str) -> str:
    """Commits a tree to the branch of a worktree; returns the branch's newest commit.

    The files of the worktree stay as they are. Repeat it after a kill. Raises GitFailed.
    """
    here = git.at(path)
    alternates = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(work.objects)}
    head = here("rev-parse", "HEAD")
    merged = _merged_heads(here)
    with tempfile.TemporaryDirectory(prefix="leadhand-") as drafts:
        index = {"GIT_INDEX_FILE": str(Path(drafts) / "index")}
        whole = _storable(here.within({**alternates, **index}), head, work.tree)
    if merged or whole != here("rev-parse", "HEAD^{tree}"):
        parents = [part for one in (head, *merged) for part in ("-p", one)]
        known = here.within(alternates)
        commit = known(*identity(here), "commit-tree", whole, *parents, "-m", message)
        packs = here.folder / here("rev-parse", "--git-path", "objects/pack/pack")
        wanted = f"{commit}\n^{head}\n"
        known("pack-objects", "--quiet", "--revs", str(packs), given=wanted)
        here("update-ref", "-m", "leadhand: accepted work", "HEAD", commit, head)
    here("reset", "--quiet")  # the index alone: what differs from the commit is uncommitted
    return here("rev-parse", "HEAD")


def _storable(here: Git, head: str, tree: str) -> str:
    """The tree as `git add` would store it: a snapshot runs no filters, and has files as they are.

    A submodule that is not filled is not in a snapshot either, and stays.
    """
    here("read-tree", tree)
    changes = list(_changes(here, head, tree))
    converted = _converted(here, [one.path for one in changes if one.mode in _FILES])
    lines: list[str] = []
    files = [one.path for one in changes if one.id != _NULL]
    for one in changes:
        is_gone = one.old_mode == _GITLINK and one.id == _NULL
        if is_gone and (here.folder / one.path).is_dir() and not _has_below(files, one.path):
            lines.append(f"{_GITLINK} {one.old_id}\t{one.path}\0")
        elif one.path in converted:
            content = here.run("cat-file", "blob", one.id)[1]
            stored = here("hash-object", "-w", "--stdin", "--path", one.path, given=content)
            lines.append(f"{one.mode} {stored}\t{one.path}\0")
    if lines:
        here("update-index", "-z", "--index-info", given="".join(lines))
    return here("write-tree")


def _has_below(files: list[str], folder: str) -> bool:
    return any(one.startswith(f"{folder}/") for one in files)


def _changes(here: Git, head: str, tree: str) -> Iterator[_Change]:
    """The entries in which a tree differs from that of a commit."""
    parts = iter(here("diff-tree", "-r", "-z", "--no-renames", head, tree).split("\0"))
    for facts in parts:
        if facts:
            old_mode, mode, old_id, id_, _ = facts.removeprefix(":").split()
            yield _Change(mode, id_, next(parts), old_mode, old_id)


def _converted(here: Git, paths: list[str]) -> frozenset[str]:
    """Those of the files whose content a filter, or core.autocrlf, changes when they are stored."""
    if here.ask("config", "core.autocrlf") in ("true", "input"):
        return frozenset(paths)
    drivers = (here.ask("config", "--name-only", "--get-regexp", r"^filter\.") or "").splitlines()
    if not drivers or not paths:
        return frozenset()
    given = "".join(f"{path}\0" for path in paths)
    words = here("check-attr", "--cached", "-z", "--stdin", "filter", given=given).split("\0")
    return frozenset(
        path
        for path, _, driver in zip(words[::3], words[1::3], words[2::3], strict=False)
        if any(one.startswith(f"filter.{driver}.") for one in drivers)
    )


def _merged_heads(here: Git) -> list[str]:
    """The commits that a merge in progress has taken in."""
    file = here.folder / here("rev-parse", "--git-path", "MERGE_HEAD")
    try:
        heads = file.read_text().split()
    except OSError:
        return []
    return [one for one in heads if not is_ancestor(here, one, "HEAD")]


def _quoted(path: Path) -> str:
    """A path in a list of folders of git, which has colons between them."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
