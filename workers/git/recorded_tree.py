"""Commits the recorded tree of a worktree: its files as a doer left them, whatever is there now."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from leadhand.models.git_settings import LIST_FILTERS, PROGRAMS, filters_in, settings_as_variables
from workers.git.git import Git, GitFailed, identity
from workers.git.layout import read_record, write_record
from workers.git.repository import is_ancestor
from workers.git.worktrees import keep

#: The modes of files in a tree, and of other repositories.
_FILES, _GITLINK = ("100644", "100755"), "160000"
_NULL = "0" * 40


class Work(NamedTuple):
    """The work of a session as its last doer left it."""

    tree: str
    #: The folder with objects of the tree that the worktree's repository does not have.
    objects: Path
    #: Variables with which git works in the repository of the snapshots: it has the lists of
    #: attributes from before the first doer.
    snapshots: Mapping[str, str]
    #: The settings by which git converted files then.
    conversions: Mapping[str, str]


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
    here = git.at(path).within(_pinned(git.at(path), work.conversions))
    alternates = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(work.objects)}
    head = here("rev-parse", "HEAD")
    merged = _merged_heads(here)
    with tempfile.TemporaryDirectory(prefix="leadhand-") as drafts:
        index = {"GIT_INDEX_FILE": str(Path(drafts) / "index")}
        whole = _storable(here.within({**alternates, **index}), head, work)
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


def _storable(here: Git, head: str, work: Work) -> str:
    """The tree as `git add` would store it: a snapshot runs no filters, and has files as they are.

    A submodule that is not filled is not in a snapshot either, and stays.
    """
    here("read-tree", work.tree)
    changes = list(_changes(here, head, work.tree))
    converted = _Conversions(here, work).of([one for one in changes if one.mode in _FILES])
    lines: list[str] = []
    files = [one.path for one in changes if one.id != _NULL]
    for one in changes:
        is_gone = one.old_mode == _GITLINK and one.id == _NULL
        if is_gone and (here.folder / one.path).is_dir() and not _has_below(files, one.path):
            lines.append(f"{_GITLINK} {one.old_id}\t{one.path}\0")
        elif one.path in converted:
            lines.append(f"{one.mode} {converted[one.path]}\t{one.path}\0")
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


class _Conversions:
    """Stores files as `git add` did in the repository before the first doer.

    `here` has the filters of then. Filters and attributes that were set since then are a doer's:
    they would make other content of what the checkers have judged.
    """

    def __init__(self, here: Git, work: Work) -> None:
        self._line_ends = work.conversions.get("core.autocrlf", "")
        names = (name for name in work.conversions if name.startswith("filter."))
        self._drivers = {name.rpartition(".")[0].removeprefix("filter.") for name in names}
        self._theirs = here
        ends = settings_as_variables([("core.autocrlf", self._line_ends)], {})
        self._recorded = here.within({**work.snapshots, **(ends if self._line_ends else {})})

    def of(self, changes: Sequence[_Change]) -> dict[str, str]:
        """Return the ids of the stored contents of those files that git converts."""
        if not changes or not (self._drivers or self._line_ends in ("true", "input")):
            return {}
        paths = [one.path for one in changes]
        attributes, now = _attributes(self._recorded, paths), _attributes(self._theirs, paths)
        found: dict[str, str] = {}
        for one in changes:
            has_filter = attributes[one.path].get("filter") in self._drivers
            if has_filter and attributes[one.path] == now[one.path]:
                found[one.path] = _stored(self._theirs, one)
            elif not has_filter and self._line_ends in ("true", "input"):
                found[one.path] = _stored(self._recorded, one)
        return found


def _pinned(here: Git, filters: Mapping[str, str]) -> dict[str, str]:
    """Variables with which git has these filters, and no others."""
    now = filters_in(os.fsencode(here.ask(*LIST_FILTERS) or ""))
    pinned = {name: "" for name in now if name.rpartition(".")[2] in PROGRAMS}
    pinned |= {name: "false" for name in now if name.endswith(".required")}
    pinned |= {name: value for name, value in filters.items() if name != "core.autocrlf"}
    return settings_as_variables([*pinned.items()], {})


def _stored(git: Git, one: _Change) -> str:
    code, content, error = git.run("cat-file", "blob", one.id)
    if code:
        raise GitFailed("cat-file", error)
    return git("hash-object", "-w", "--stdin", "--path", one.path, given=content)


def _attributes(git: Git, paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """The attributes of each file, as the index has them."""
    given = "".join(f"{path}\0" for path in paths)
    words = git("check-attr", "--cached", "-z", "--stdin", "-a", given=given).split("\0")
    found: dict[str, dict[str, str]] = {path: {} for path in paths}
    for path, name, value in zip(words[::3], words[1::3], words[2::3], strict=False):
        found[path][name] = value
    return found


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
