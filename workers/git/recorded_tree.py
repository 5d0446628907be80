"""Commits the recorded tree of a worktree: its files as a doer left them, whatever is there now."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from leadhand.models.git_settings import LIST_FILTERS, PROGRAMS, filters_in, settings_as_variables
from workers.git.git import Git, WorkspaceRefused, identity
from workers.git.layout import read_record, write_record
from workers.git.repository import is_ancestor
from workers.git.worktrees import keep

#: The modes of files in a tree, and of other repositories.
_FILES, _GITLINK = ("100644", "100755"), "160000"
#: The mode of what is not in a tree.
_ABSENT = "000000"
_PACK = ("pack-objects", "--quiet", "--non-empty")
_OBJECTS = ("rev-list", "--objects", "--no-object-names")
#: The attributes by which git converts a file without a filter.
_ENCODING = "working-tree-encoding"
_CONVERT = frozenset({"text", "crlf", "eol", "ident", _ENCODING})


class Work(NamedTuple):
    """The work of a session as its last doer left it."""

    tree: str
    #: The folder with objects of the tree that the worktree's repository does not have.
    objects: Path
    #: Variables with which git works in the repository of the snapshots: it converts nothing, and
    #: its settings name the user's own list of attributes from before the first doer.
    snapshots: Mapping[str, str]
    #: The settings by which git converted files then.
    conversions: Mapping[str, str]
    #: The file with the repository's own attributes then, which count more than `.gitattributes`.
    attributes: Path


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
    with tempfile.TemporaryDirectory(prefix="leadhand-") as name:
        drafts = Path(name)
        index = {"GIT_INDEX_FILE": str(drafts / "index")}
        whole = _storable(here.within({**alternates, **index}), head, work, drafts)
    known, commit = here.within(alternates), head
    if merged or whole != here("rev-parse", "HEAD^{tree}"):
        parents = [part for one in (head, *merged) for part in ("-p", one)]
        commit = known(*identity(here), "commit-tree", whole, *parents, "-m", message)
    record = read_record(path)
    _store(known, commit, record.base if record is not None and record.base else head)
    if commit != head:
        here("update-ref", "-m", "leadhand: accepted work", "HEAD", commit, head)
    here("reset", "--quiet")  # the index alone: what differs from the commit is uncommitted
    return here("rev-parse", "HEAD")


def _store(known: Git, commit: str, base: str) -> None:
    """Bring the objects of a commit into the repository. Raises WorkspaceRefused for forged ones.

    Git writes no object whose id is there already, and reads it without comparing content and id:
    a doer could have another content committed than the one that was judged. An object that the
    base has is new too where it is at another path: the doer may have forged it since.
    """
    packs = known.folder / known("rev-parse", "--git-path", "objects/pack/pack")
    wanted = {*known(*_OBJECTS, commit, f"^{base}").split()}
    changes = _changes(known, base, commit, "-t")
    wanted |= {one.id for one in changes if one.mode not in (_ABSENT, _GITLINK)}
    names = "".join(f"{one}\n" for one in wanted)
    for name in known(*_PACK, str(packs), given=names).split():
        pack = packs.with_name(f"pack-{name}.pack")
        if known.ask("verify-pack", str(pack)) is None:
            for file in packs.parent.glob(f"{pack.stem}.*"):
                file.unlink()
            raise WorkspaceRefused(
                "objects of the repository are not what their ids say: run `git fsck` in it, remove"
                " those that it names as corrupt, and do the work again"
            )


def _storable(here: Git, head: str, work: Work, drafts: Path) -> str:
    """The tree as `git add` would store it: a snapshot converts nothing, and has files as they are.

    A submodule that is not filled is not in a snapshot either, and stays.
    """
    here("read-tree", work.tree)
    changes = list(_changes(here, head, work.tree))
    files = [one.path for one in changes if one.mode != _ABSENT]
    lines = [
        f"{_GITLINK} {one.old_id}\t{one.path}\0"
        for one in changes
        if one.old_mode == _GITLINK and one.mode == _ABSENT
        if (here.folder / one.path).is_dir() and not _has_below(files, one.path)
    ]
    if lines:
        here("update-index", "-z", "--index-info", given="".join(lines))
    _Conversions(here, work, drafts).store([one for one in changes if one.mode in _FILES])
    return here("write-tree")


def _has_below(files: list[str], folder: str) -> bool:
    return any(one.startswith(f"{folder}/") for one in files)


def _changes(here: Git, head: str, tree: str, *options: str) -> Iterator[_Change]:
    """The entries in which a tree differs from that of a commit."""
    parts = iter(here("diff-tree", "-r", "-z", "--no-renames", *options, head, tree).split("\0"))
    for facts in parts:
        if facts:
            old_mode, mode, old_id, id_, _ = facts.removeprefix(":").split()
            yield _Change(mode, id_, next(parts), old_mode, old_id)


class _Conversions:
    """Stores files as `git add` did in the repository before the first doer.

    `here` has the filters and the index of the work. Filters and attributes that were set since
    then are a doer's: they would make other content of what the checkers have judged. What is in
    the worktree by now is not read either, so files are converted in a draft folder.
    """

    def __init__(self, here: Git, work: Work, drafts: Path) -> None:
        self._line_ends = work.conversions.get("core.autocrlf", "")
        names = (name for name in work.conversions if name.startswith("filter."))
        self._drivers = {name.rpartition(".")[0].removeprefix("filter.") for name in names}
        self._snapshots = here.within(work.snapshots)
        self._files = drafts / "files"
        self._files.mkdir()
        tree = {"GIT_WORK_TREE": str(self._files)}
        #: With the filters, which may need the repository, as that of LFS does.
        home = here("rev-parse", "--absolute-git-dir")
        self._theirs = here.at(self._files).within({**tree, "GIT_DIR": home})
        #: With the attributes from before the first doer, which the snapshots do not follow.
        own = {**work.snapshots, **tree, **_recorded(work, drafts / "git")}
        self._recorded = here.at(self._files).within(own)

    def store(self, changes: Sequence[_Change]) -> None:
        """Put those files that git converts into the index as it stores them. Raises GitFailed."""
        if not changes:
            return
        paths = [one.path for one in changes]
        then, now = _attributes(self._recorded, paths), _attributes(self._theirs, paths)
        filtered = {one for one in changes if then[one.path].get("filter") in self._drivers}
        # Without the filter, such a file stays as it was judged.
        same = [one for one in filtered if then[one.path] == now[one.path]]
        others = [one for one in changes if one not in filtered]
        if self._line_ends not in ("true", "input"):
            others = [one for one in others if then[one.path].keys() & _CONVERT]
        for git, files in ((self._theirs, same), (self._recorded, others)):
            plain = [one for one in files if _ENCODING not in then[one.path]]
            encoded = [one.path for one in files if _ENCODING in then[one.path]]
            self._store(git, plain, encoded)

    def _store(self, git: Git, files: Sequence[_Change], encoded: Sequence[str]) -> None:
        """Put files into the index as git converts them; those that it cannot encode stay."""
        if not (files or encoded):
            return
        names = _listed([*(one.path for one in files), *encoded])
        self._snapshots("checkout-index", "-z", "--stdin", f"--prefix={self._files}/", given=names)
        # Git keeps the line ends of a file that is stored with those of Windows already.
        empty = git("hash-object", "-w", "--stdin", given="")
        before = ((one, one.old_id if one.old_mode in _FILES else empty) for one in files)
        lines = "".join(f"{one.mode} {id_}\t{one.path}\0" for one, id_ in before)
        git("update-index", "-z", "--index-info", given=lines)
        git("update-index", "-z", "--stdin", given=_listed(one.path for one in files))
        for name in encoded:
            git.ask("update-index", "--", name)


def _recorded(work: Work, home: Path) -> dict[str, str]:
    """Make a repository with the attributes and line ends of then, and return its variables."""
    snapshots = Path(work.snapshots["GIT_DIR"])
    (home / "refs").mkdir(parents=True)
    for name in ("HEAD", "config"):
        shutil.copyfile(snapshots / name, home / name)
    (home / "info").mkdir()
    shutil.copyfile(work.attributes, home / "info" / "attributes")
    ends = work.conversions.get("core.autocrlf") or "false"
    settings = settings_as_variables([("core.autocrlf", ends), ("core.safecrlf", "false")], {})
    return {"GIT_DIR": str(home), "GIT_OBJECT_DIRECTORY": str(work.objects), **settings}


def _pinned(here: Git, conversions: Mapping[str, str]) -> dict[str, str]:
    """Variables with which git has these filters and line ends, and no others."""
    now = filters_in(os.fsencode(here.ask(*LIST_FILTERS) or ""))
    pinned = {name: "" for name in now if name.rpartition(".")[2] in PROGRAMS}
    pinned |= {name: "false" for name in now if name.endswith(".required")}
    pinned |= {"core.autocrlf": "false", **conversions, "core.safecrlf": "false"}
    return settings_as_variables([*pinned.items()], {})


def _listed(names: Iterable[str]) -> str:
    return "".join(f"{name}\0" for name in names)


def _attributes(git: Git, paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """The attributes of each file, as the index has them."""
    words = git("check-attr", "--cached", "-z", "--stdin", "-a", given=_listed(paths)).split("\0")
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
