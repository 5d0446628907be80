"""Snapshots a working folder: its digest, the diff between two snapshots, and a way back to one.

A snapshot has the files that git tracks and the untracked ones that are not ignored; of a folder
in no repository all files. Nothing in the user's repository is written: snapshots are in a private
one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from leadhand.models.git_settings import QUIET, repository_top
from workers.folders.private_repository import (
    CONVERTED,
    FolderTooLarge,
    PrivateRepository,
    find_repository,
    make_repository,
)
from workers.processes import environment
from workers.processes.nested_repositories import (
    BY_PRODUCTS,
    LARGE,
    checked_out_in,
    is_by_product,
    is_large,
    nested_in,
    open_nested,
    submodules_of,
)
from workers.processes.user_folders import claim_session_folder

#: The timeout of a snapshot or diff, in seconds.
SNAPSHOT_S = 10.0
#: The timeout of setting a folder to a snapshot, in seconds.
RESTORE_S = 300.0
#: Seconds without snapshots after one timed out.
REST_S = 600.0
#: The most bytes of a diff.
PATCH_BYTES = 200_000
#: The most files and bytes that are read in a folder without git.
FILES, READ_BYTES = 20_000, 512 * 1024 * 1024
#: So many large files are looked up.
_LARGE_FILES = 1_000
#: The file beside the snapshots with the submodules from before the first doer.
_SUBMODULES = "submodules"
#: By how much the times of files may be behind the clock, in nanoseconds.
_CLOCK_NS = 2_000_000_000
#: Git settings without hooks, daemons, housekeeping and line-ending conversion.
_PLAIN = (
    "core.fsmonitor=false", "core.untrackedCache=false", "core.hooksPath=/dev/null", "gc.auto=0",
    "core.autocrlf=false", "core.safecrlf=false", "advice.addEmbeddedRepo=false",
    "submodule.recurse=false",
)  # fmt: skip


class SnapshotLost(Exception):
    """A folder cannot be set to a snapshot; the text says why."""


class Worktree:
    """Snapshots of one session's working folder; index and objects are in the folder `shelf`."""

    #: Why the last snapshot or diff failed.
    failure: Literal["slow", "unreadable"] | None = None

    def __init__(
        self,
        folder: Path,
        shelf: Path,
        *,
        lock: int | None = None,
        is_own: bool = False,
        most: int | None = None,
        leave_out: Sequence[str] | None = None,
    ) -> None:
        self.folder = folder
        #: Whether it is a session's own worktree, so that repositories in it are a doer's work.
        self.is_own = is_own
        #: A file that git keeps open too: its lock outlives a worker that is killed.
        self._lock = lock
        self.shelf = shelf
        #: The most bytes of a folder in no repository; None for no limit.
        self._most = most
        #: The patterns of by-products, for the first snapshot of a session.
        self._leave_out = BY_PRODUCTS if leave_out is None else leave_out
        self._slow = shelf / "slow"
        self._deadline = 0.0
        self._found: PrivateRepository | None = None
        #: The large files that the last snapshot has left out.
        self._large_files: list[str] | None = None

    def snapshot(self) -> str | None:
        """Compute the folder's digest, ``git:TREE`` or ``files:HASH``; None if too slow.

        After a timeout the next try is REST_S later: a snapshot delays its step.
        """
        self.failure = "slow"
        if self._is_resting():
            return None
        self._deadline = time.monotonic() + SNAPSHOT_S
        try:
            repository = self._open_repository()
            found = self._files_digest() if repository is None else self._git_digest(repository)
        except subprocess.TimeoutExpired:
            found = None
        except (OSError, subprocess.SubprocessError, ValueError):
            self.failure = "unreadable"
            return None
        if found is None:
            self._rest()
        else:
            self.failure = None
        return found

    def why_no_git(self) -> Literal["no_git", "slow"]:
        """Return why the folder's snapshots are made without git: it is missing, or it is large."""
        return "no_git" if shutil.which("git") is None else "slow"

    def _is_resting(self) -> bool:
        try:
            return abs(time.time() - self._slow.stat().st_mtime) < REST_S
        except OSError:
            return False

    def _rest(self) -> None:
        """Pause snapshots for REST_S and delete the temporary objects of the one that timed out."""
        with suppress(OSError):
            claim_session_folder(self.shelf)
            self._slow.touch()
            for begun in self.shelf.glob("*/objects/*/tmp_*"):
                begun.unlink(missing_ok=True)

    def knows(self, digest: str | None) -> bool:
        """Whether git has this snapshot (git:TREE), so that it can be compared; False on errors."""
        tree = _tree(digest)
        if tree is None:
            return False
        self._deadline = time.monotonic() + SNAPSHOT_S
        try:
            if self._open_repository() is None:
                return False
            self._git("cat-file", "-e", f"{tree}^{{tree}}")
        except (OSError, subprocess.SubprocessError):
            return False
        return True

    def merge_base(self, target: str) -> str | None:
        """Return the folder's digest in the commit where HEAD left `target`; None if unknown."""
        self._deadline = time.monotonic() + SNAPSHOT_S
        try:
            repository = self._open_repository()
            beneath = repository.prefix.rstrip("/") if repository is not None else ""
            commit = self._git("merge-base", target, "HEAD", own=False)
            tree = self._git("rev-parse", "--verify", f"{commit}:{beneath}", own=False)
        except (OSError, subprocess.SubprocessError):
            return None
        return f"git:{tree}"

    def patch(self, before: str | None, after: str | None) -> str | None:
        """Return the diff between two snapshots, truncated; None without git or on an error."""
        old, new = _tree(before), _tree(after)
        if old is None or new is None:
            return None
        self._deadline = time.monotonic() + SNAPSHOT_S
        options = ("-r", "-p", "-M", "--no-ext-diff", "--no-textconv", "--no-color")
        try:
            self._open_repository()
            return self._truncated_output("diff-tree", *options, old, new)
        except subprocess.TimeoutExpired:
            self.failure = "slow"
        except (OSError, subprocess.SubprocessError):
            self.failure = "unreadable"
        return None

    def changed_names(self, before: str | None, after: str | None) -> list[str]:
        """Return the files that differ between two snapshots; none without git or on an error."""
        old, new = _tree(before), _tree(after)
        if old is None or new is None or old == new:
            return []
        self._deadline = time.monotonic() + SNAPSHOT_S
        try:
            self._open_repository()
            return self._names("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new)
        except (OSError, subprocess.SubprocessError):
            return []

    def part(self, digest: str | None, folder: Path) -> str | None:
        """Return the digest of a folder within this one, in a snapshot; None if it is unknown."""
        if folder == self.folder:
            return digest
        tree, beneath = _tree(digest), folder.resolve().relative_to(self.folder.resolve())
        if tree is None:
            return None
        self._deadline = time.monotonic() + SNAPSHOT_S
        try:
            self._open_repository()
            return f"git:{self._git('rev-parse', '--verify', f'{tree}:{beneath.as_posix()}')}"
        except (OSError, subprocess.SubprocessError):
            return None

    def tracked(self, names: Sequence[str]) -> list[str]:
        """Return those of these files that git tracks; all of them on an error."""
        if repository_top(self.folder) is None:
            return []
        self._deadline = time.monotonic() + SNAPSHOT_S
        try:
            return [*self._tracked_of(names)]
        except (OSError, subprocess.SubprocessError):
            return list(names)

    def ignored(self) -> list[str]:
        """Return the files that git ignores, in no folder that is ignored; none on an error."""
        self._deadline = time.monotonic() + SNAPSHOT_S
        options = ("--others", "--ignored", "--exclude-standard", "--directory", "-z")
        try:
            self._open_repository()
            listed = self._names("ls-files", *options)
        except (OSError, subprocess.SubprocessError):
            return []
        return [name for name in listed if not name.endswith("/")]

    def untracked(self) -> list[str]:
        """Return what the last snapshot does not have, whether git ignores it or not.

        A folder of which it has nothing is one name, with a slash at its end.
        """
        self._deadline = time.monotonic() + SNAPSHOT_S
        options = ("--others", "--directory", "--no-empty-directory", "-z")
        self._open_repository()
        return self._names("ls-files", *options)

    def restore(self, digest: str, earlier: Path) -> None:
        """Set the folder to a snapshot that another session made in the shelf `earlier`.

        Files that git ignores stay as they are. Repeat it after a kill. Raises SnapshotLost.
        """
        self._deadline = time.monotonic() + RESTORE_S
        try:
            self._restore(str(_tree(digest)), earlier)
        except subprocess.TimeoutExpired:
            raise SnapshotLost(f"git did not end within {RESTORE_S:g} s") from None
        except (OSError, subprocess.SubprocessError):
            raise SnapshotLost("its files are no longer stored here") from None

    def put_back(self, digest: str) -> None:
        """Set the folder to an earlier snapshot of its own, as `restore` does. Raises SnapshotLost.

        Files that git ignores stay as they are.
        """
        self.restore(digest, self.shelf)

    def _restore(self, tree: str, earlier: Path) -> None:
        repository = self._open_repository()
        if repository is None:
            raise SnapshotLost(f"git cannot take snapshots of {str(self.folder)!r}")
        if earlier != self.shelf:
            self._copy_objects(earlier, repository)
            with suppress(FileExistsError, FileNotFoundError):
                (self.shelf / _SUBMODULES).hardlink_to(earlier / _SUBMODULES)
        self._git_digest(repository)  # so that the index names the files that have to go
        since_ns = time.time_ns() - _CLOCK_NS
        whole = self._whole_tree(repository, tree)
        self._restore_lists(repository, whole)
        self._git("read-tree", "--reset", "-u", whole)
        self._write_converted(repository, earlier, since_ns)

    def _restore_lists(self, repository: PrivateRepository, whole: str) -> None:
        """Set the lists of ignored files to a tree first, and the index to what they say then.

        Since they were changed, files of the tree's state may count as work, which would be
        removed, and other files as ignored, which would stay.
        """
        compare = ("diff-index", "--cached", "--relative", "--no-renames", "-z")
        lists = self._names(*compare, whole, "--", ":(glob)**/.gitignore")
        if lists:
            index = repository.home / "index.lists"
            shutil.copyfile(repository.home / "index", index)
            for facts, name in zip(lists[::2], lists[1::2], strict=True):
                mode, _, id_, _, kind = facts.removeprefix(":").split()
                if kind == "A":
                    self._git("update-index", "--force-remove", "--", name, index=index)
                else:
                    info = f"{mode},{id_},{repository.prefix}{name}"
                    self._git("update-index", "--add", "--cacheinfo", info, index=index)
            with_lists = self._git("write-tree", "--missing-ok", index=index)
            self._git("read-tree", "--reset", "-u", with_lists)
            self._git_digest(repository)
        gone = self._names(*compare, "--name-only", "--diff-filter=A", whole)
        ignored = self._names("ls-files", "-z", "-c", "-i", "--exclude-standard")
        self._update_index("--force-remove", [*{*gone} & {*ignored}])

    def _copy_objects(self, earlier: Path, repository: PrivateRepository) -> None:
        """Link the objects of another session's snapshots: they may be deleted before these."""
        for file in earlier.glob("*/objects/*/*"):
            if file.parent.name == "info" or file.name.startswith("tmp_"):
                continue
            copy = repository.objects / file.parent.name / file.name
            copy.parent.mkdir(mode=0o700, exist_ok=True)
            with suppress(FileExistsError):
                copy.hardlink_to(file)

    def _whole_tree(self, repository: PrivateRepository, tree: str) -> str:
        """The tree of the repository, with the folder replaced by a snapshot of it."""
        if not repository.prefix:
            return tree
        index = repository.home / "index.whole"
        shutil.copyfile(repository.home / "index", index)
        self._git("rm", "-r", "-f", "-q", "--cached", "--ignore-unmatch", "--", ".", index=index)
        self._git("read-tree", f"--prefix={repository.prefix}", tree, index=index)
        return self._git("write-tree", "--missing-ok", index=index)

    def _git_digest(self, repository: PrivateRepository) -> str:
        (repository.home / "index.lock").unlink(missing_ok=True)  # its holder was killed
        self._prepare_index(repository)
        if self.is_own or not repository.is_in_repository:
            self._note_nested(open_nested(self._raw, self.folder, self._submodules(repository)))
        self._add_all(repository)
        self._store_converted(repository)
        prefix = repository.prefix
        options = ("--prefix", prefix) if prefix and self._git("ls-files", "--", ".") else ()
        return f"git:{self._git('write-tree', '--missing-ok', *options)}"

    @property
    def repository(self) -> PrivateRepository | None:
        """Return the repository of the snapshots; None without git, or before the first one."""
        return self._found

    @property
    def _nested(self) -> Path:
        """The file with the names of the repositories whose files the snapshots have."""
        return self.shelf / "nested"

    def _submodules(self, repository: PrivateRepository) -> frozenset[str]:
        """The submodules from before the first doer, noted at the first snapshot of any folder."""
        noted = self.shelf / _SUBMODULES
        if not noted.exists():
            gitmodules, file = "", repository.top / ".gitmodules"
            with suppress(OSError):
                gitmodules = file.read_text(errors="surrogateescape")
            draft = noted.with_suffix(".new")
            draft.write_bytes(os.fsencode("\0".join(submodules_of(gitmodules))))
            draft.replace(noted)
        return frozenset(os.fsdecode(noted.read_bytes()).split("\0"))

    def _note_nested(self, names: list[str]) -> None:
        if names:
            with self._nested.open("ab") as file:
                file.write(os.fsencode("".join(f"{one}\0" for one in names)))

    def nested(self) -> list[str]:
        """Return the repositories in the worktree, by path from its top, that became files."""
        try:
            noted = os.fsdecode(self._nested.read_bytes()).split("\0")
        except OSError:
            return []
        known = dict.fromkeys(one for one in noted if one)
        return [one for one in known if (self.folder / one / ".git").exists()]

    def _add_all(self, repository: PrivateRepository) -> None:
        """Bring the index up to date; a repository in the folder without a commit is left out."""
        self._large_files = self._large()
        large = (f":(exclude,literal){name}" for name in self._large_files)
        add = ("add", "-A", "--", ".", *large)
        self._add_tracked_by_products(repository)
        try:
            self._git(*add)
        except subprocess.CalledProcessError:
            nested = nested_in(self._raw)
            if not nested:
                raise
            self._git(*add, *(f":(exclude,literal){one}" for one in nested))

    def _add_tracked_by_products(self, repository: PrivateRepository) -> None:
        """Bring by-products that the folder's own index has into the index of the snapshots.

        Those that are not there are gone from it by themselves, or outside of a sparse checkout.
        """
        if not repository.is_in_repository:
            return
        patterns = str(repository.by_products)
        try:
            tracked = self._names(
                "ls-files", "-z", "-c", "-i", "-X", patterns, "--", ".", own=False
            )
        except subprocess.CalledProcessError as error:
            if error.returncode < 0:  # a signal has ended it
                raise
            return  # the doer has broken or removed the repository
        names = [name for name in tracked if self._has(name)]
        for at in range(0, len(names), 500):
            self._git("update-index", "--add", "--remove", "--", *names[at : at + 500])

    def _has(self, name: str) -> bool:
        return os.path.lexists(self.folder / name)

    def _large(self) -> list[str]:
        """The files above LARGE bytes that are neither in the snapshots nor tracked."""
        others = self._names("ls-files", "-z", "-o", "--exclude-standard")
        large = [name for name in others if is_large(self.folder / name)]
        if not large:
            return []
        try:
            tracked = self._tracked_of(large[:_LARGE_FILES])
        except subprocess.CalledProcessError:
            tracked = set()
        return [name for name in large if name not in tracked]

    def _tracked_of(self, names: Sequence[str]) -> set[str]:
        """Those of these names that the folder's own index has."""
        return {*self._names("ls-files", "-z", "--", *names, own=False)}

    def left_out(self) -> list[str]:
        """Return what is no work in the folder although git does not ignore it.

        These are by-products that are not tracked, large files, and the files of submodules that
        are checked out: a snapshot has the commit of a submodule only.
        """
        self._deadline = time.monotonic() + SNAPSHOT_S
        options = ("-z", "-o", "--directory", "--no-empty-directory")
        try:
            repository = self._open_repository()
            if repository is None:
                return []
            patterns = f"--exclude-from={repository.by_products}"
            found = self._names("ls-files", *options, "--ignored", patterns)
            ignored = self._ignored_by_users(found) if repository.is_in_repository else set()
            large = self._large() if self._large_files is None else self._large_files
            submodules = {f"{one}/" for one, _ in checked_out_in(self._raw, self.folder)}
        except (OSError, subprocess.SubprocessError):
            return []
        return sorted({*found} - ignored | {*large} | submodules)

    def _ignored_by_users(self, names: Sequence[str]) -> set[str]:
        """Those of these names that the folder's own repository ignores."""
        if not names:
            return set()
        try:
            return {*self._names("check-ignore", "-z", "--", *names[:_LARGE_FILES], own=False)}
        except subprocess.CalledProcessError:  # it ignores none, or is broken
            return set()

    def _names(self, *arguments: str, own: bool = True) -> list[str]:
        """Run git and return what it prints with a NUL byte after each."""
        listed = self._run_git(*arguments, own=own).split(b"\0")
        return [os.fsdecode(one) for one in listed if one]

    def _raw(self, *arguments: str) -> str:
        return os.fsdecode(self._run_git(*arguments))

    def _prepare_index(self, repository: PrivateRepository) -> None:
        """Let `add` compare each file that is there, and run no program of another repository.

        The user's index may mark files as unchanged, or as not wanted in a sparse checkout. Of
        times git compares the seconds alone, so a file may have changed again within one. For a
        nested repository in the index, git would check for changes inside it with another git
        process, which runs the filters of that repository's own configuration.
        """
        index, prefix = repository.home / "index", repository.prefix
        if not index.exists():
            return
        since = int(index.stat().st_mtime)
        listed = self._run_git("ls-files", "--stage", "-v", "--debug", "-z")
        # Of most entries it is enough to look at the tag, the mode and the seconds.
        entries = [
            _Entry.of(found)
            for found in _ENTRY.finditer(listed)
            if found[1] != b"H" or found[2] == _LINK or int(found[5] or 0) >= since
        ]
        links = [one.name for one in entries if one.is_link]
        files = (one for one in entries if not one.is_link)
        newer = [one for one in files if one.seconds >= since and one.is_newer(self.folder)]
        believed = [one.name for one in entries if one.tag.islower()]
        sparse = [one.name for one in entries if one.tag in "sS"]
        there = [name for name in sparse if self._has(name)]
        self._update_index("--force-remove", links)
        self._put_entries(newer, prefix)
        self._update_index("--no-assume-unchanged", believed)
        self._update_index("--no-skip-worktree", there)

    def _put_entries(self, entries: Sequence[_Entry], prefix: str = "") -> None:
        """Put entries into the index without their times: the next `add` reads the files."""
        for at in range(0, len(entries), 500):
            infos = (("--cacheinfo", one.info(prefix)) for one in entries[at : at + 500])
            self._git("update-index", *chain.from_iterable(infos))

    def _update_index(self, option: str, names: Sequence[str]) -> None:
        for at in range(0, len(names), 500):
            self._git("update-index", option, "--", *names[at : at + 500])

    def _open_repository(self) -> PrivateRepository | None:
        """The private repository of the folder, made by the first snapshot; None without git."""
        if self._found is None:
            self._found = find_repository(self.shelf, self.folder)
        if self._found is None and shutil.which("git") is not None:
            with suppress(FolderTooLarge):
                self._found = make_repository(
                    self.shelf,
                    self.folder,
                    partial(self._run_git, own=False),
                    most=self._most,
                    leave_out=self._leave_out,
                    deadline=self._deadline,
                )
        found = self._found
        if found is not None and found.is_in_repository and not found.converted.exists():
            self._keep_converted(found)
        return found

    def _keep_converted(self, repository: PrivateRepository) -> None:
        """Keep the files that git converts, such as by a filter of LFS, as they are in the folder.

        The index has them in the form in which git stores them, and snapshots convert nothing: one
        of a file that has not changed has its stored form, and would be no way back to the file.
        The list is written at the end, also if it is empty: without it, this is repeated.
        """
        found, there, left = dict[str, tuple[str, str]](), list[_Entry](), READ_BYTES
        for one in self._convertible(repository):
            size = _size(repository.top / one.name)
            is_file = one.mode != _SYMLINK and not one.is_link
            is_kept = size is not None and size <= min(LARGE, left) and is_file
            if is_kept and not one.is_newer(repository.top):
                there.append(one)
                left -= size or 0
        for at in range(0, len(there), 500):
            part = [(one, str(repository.top / one.name)) for one in there[at : at + 500]]
            raws = zip(part, self._hash_as_is([path for _, path in part]), strict=True)
            other = [(*file, raw) for file, raw in raws if file[0].id != raw]
            # Most files are stored as they are, so that only few are written.
            self._hash_as_is([path for _, path, _ in other], "-w")
            found |= {one.name: (one.id, raw) for one, _, raw in other}
        with tempfile.NamedTemporaryFile("w", dir=repository.home, delete=False) as draft:
            json.dump(found, draft)
        Path(draft.name).replace(repository.converted)

    def _hash_as_is(self, paths: Sequence[str], *options: str) -> list[str]:
        """The ids of files without any conversion."""
        if not paths:
            return []
        return self._git("hash-object", *options, "--no-filters", "--", *paths).split("\n")

    def _convertible(self, repository: PrivateRepository) -> Iterator[_Entry]:
        """The files that the folder's repository may convert, by attributes or core.autocrlf."""
        which = [":(top)"]
        if repository.conversions.get("core.autocrlf") not in ("true", "input"):
            which += (f":(top,exclude,attr:{attributes})" for attributes in _AS_IS)
        listed = self._run_git("ls-files", "-z", "--full-name", "--", *which, own=False)
        names = {one for one in listed.split(b"\0") if one}
        if not names:
            return
        entries = self._run_git(
            "ls-files", "--stage", "-v", "--debug", "-z", "--full-name", "--", ":(top)"
        )
        for found in _ENTRY.finditer(entries):
            if found[4] in names:
                yield _Entry.of(found)

    def _store_converted(self, repository: PrivateRepository) -> None:
        """Give files that are as before the first doer the same ids as then.

        A file with another time was read again, and has the id of what is in the folder.
        """
        kept = _read_converted(repository.converted)
        if not kept:
            return
        listed = self._run_git("ls-files", "--stage", "-v", "-z", "--full-name")
        self._put_entries(
            [
                one._replace(id=kept[one.name][0])
                for one in map(_Entry.of, _ENTRY.finditer(listed))
                if one.name in kept and one.id == kept[one.name][1]
            ]
        )

    def _write_converted(self, repository: PrivateRepository, earlier: Path, since_ns: int) -> None:
        """Give files that git has just written in their stored form the contents of the folder."""
        kept: dict[str, tuple[str, str]] = {}
        for file in earlier.glob(f"*/{CONVERTED}"):
            kept |= _read_converted(file)
        if not kept:
            return
        listed = self._run_git("ls-files", "--stage", "-v", "-z", "--full-name")
        for one in map(_Entry.of, _ENTRY.finditer(listed)):
            stored, raw = kept.get(one.name, ("", ""))
            path = repository.top / one.name
            if one.id == stored and _changed_ns(path) >= since_ns:
                path.write_bytes(self._run_git("cat-file", "blob", raw))

    def run_theirs(self, *arguments: str) -> str:
        """Run git in the folder's own repository. Raises OSError, SubprocessError."""
        self._deadline = time.monotonic() + SNAPSHOT_S
        return os.fsdecode(self._run_git(*arguments, own=False)).strip("\n")

    def _git(self, *arguments: str, own: bool = True, index: Path | None = None) -> str:
        output = self._run_git(*arguments, own=own, index=index)
        return output.decode(errors="replace").strip("\n")

    def _truncated_output(self, *arguments: str) -> str:
        """The first PATCH_BYTES of git's output."""
        taken = self._run_git(*arguments, most=PATCH_BYTES + 1)
        if len(taken) <= PATCH_BYTES:
            return taken.decode(errors="replace")
        # Half a line may hold half a secret, which redaction would not recognise.
        text = taken[: taken.rfind(b"\n", 0, PATCH_BYTES) + 1].decode(errors="replace")
        return f"{text}[... the rest is left out ...]\n"

    def _run_git(
        self,
        *arguments: str,
        own: bool = True,
        most: int = -1,
        index: Path | None = None,
    ) -> bytes:
        """Run git and return at most so many bytes of its output; kill its group on timeout."""
        command = _command(*arguments)
        other = {} if index is None else {"GIT_INDEX_FILE": str(index)}
        with subprocess.Popen(  # noqa: S603 - git, with fixed arguments
            command,
            cwd=self.folder,
            env=self._environment(own=own) | other,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
            pass_fds=() if self._lock is None else (self._lock,),
        ) as process:
            taken = _read(process, most, max(0.1, self._deadline - time.monotonic()))
        if process.returncode and len(taken) != most:
            raise subprocess.CalledProcessError(process.returncode, command)
        return taken

    def _environment(self, *, own: bool) -> dict[str, str]:
        """The environment of git, without the worker's secrets: a repository may name programs."""
        plain = {**environment.clean(environment.inherited()), "LC_ALL": "C", **QUIET}
        return plain | self._found.variables if own and self._found is not None else plain

    def _files_digest(self) -> str | None:
        mixed, files, left = hashlib.sha256(), 0, READ_BYTES
        for path in _walk(self.folder):
            status = path.lstat()
            files, left = files + 1, left - status.st_size
            if files > FILES or left < 0 or time.monotonic() > self._deadline:
                return None
            mixed.update(f"{path.relative_to(self.folder)}\0".encode(errors="surrogateescape"))
            mixed.update(_content(path, status.st_mode))
        return f"files:{mixed.hexdigest()}"


def _read(process: subprocess.Popen[bytes], most: int, seconds: float) -> bytes:
    """Read at most so many bytes from the leader of a process group, then kill the group."""
    assert process.stdout is not None
    late = threading.Event()

    def end() -> None:
        with suppress(ProcessLookupError, PermissionError):  # it ended by itself
            os.killpg(process.pid, signal.SIGKILL)

    def time_out() -> None:
        late.set()
        end()

    timer = threading.Timer(seconds, time_out)
    timer.start()
    try:
        taken = process.stdout.read(most)
        if len(taken) != most:  # wait for its end without reaping it, so that its pid stays its own
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    finally:
        timer.cancel()
        timer.join()
        end()
    if late.is_set():
        raise subprocess.TimeoutExpired(process.args, seconds)
    return taken


def _command(*arguments: str) -> list[str]:
    settings = [part for setting in _PLAIN for part in ("-c", setting)]
    return ["git", *settings, *arguments]


def _size(path: Path) -> int | None:
    try:
        return path.lstat().st_size
    except OSError:
        return None


def _changed_ns(path: Path) -> int:
    """When the inode of a file changed; 0 if it is not there."""
    try:
        return path.lstat().st_ctime_ns
    except OSError:
        return 0


def _read_converted(file: Path) -> dict[str, tuple[str, str]]:
    """The ids of the stored form and of the content in the folder, by path from its top."""
    try:
        found: dict[str, tuple[str, str]] = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return found


def _tree(digest: str | None) -> str | None:
    kind, _, tree = (digest or "").partition(":")
    return tree if kind == "git" else None


#: An entry of an index, as `ls-files --stage -v --debug -z` prints it.
_ENTRY = re.compile(
    rb"(\w) (\d+) (\w+) \d\t([^\0]*)\0(?: +ctime: (\d+):(\d+)\n(?: .*\n)*)?", re.ASCII
)


#: The mode of another repository's commit.
_LINK = b"160000"
#: The mode of a symbolic link.
_SYMLINK = "120000"
#: The attributes of files that git stores as they are.
_AS_IS = (
    "!text !crlf !eol !ident !filter !working-tree-encoding",
    "-text !ident !filter !working-tree-encoding",
)


class _Entry(NamedTuple):
    """A file in an index."""

    #: `S` for one outside of a sparse checkout; small letters if git does not look at the file.
    tag: str
    mode: str
    id: str
    name: str
    #: When its inode changed.
    seconds: int
    nanoseconds: int

    @classmethod
    def of(cls, found: re.Match[bytes]) -> _Entry:
        tag, mode, id_, name, *times = found.groups(b"0")
        seconds, nanoseconds = map(int, times)
        return cls(
            tag.decode(), mode.decode(), id_.decode(), os.fsdecode(name), seconds, nanoseconds
        )

    @property
    def is_link(self) -> bool:
        """Whether it is another repository's commit."""
        return self.mode == _LINK.decode()

    def info(self, prefix: str) -> str:
        """Return the entry as `update-index --cacheinfo` takes it."""
        return f"{self.mode},{self.id},{prefix}{self.name}"

    def is_newer(self, folder: Path) -> bool:
        """Whether the file has changed since."""
        try:
            status = (folder / self.name).lstat()
        except OSError:
            return False  # git notices that
        return status.st_ctime_ns != self.seconds * 1_000_000_000 + self.nanoseconds


def _walk(folder: Path) -> Iterator[Path]:
    """Every file and link below the folder, in a stable order."""
    for above, names, files in os.walk(folder):
        names[:] = sorted(one for one in names if one != ".git" and not is_by_product(one))
        links = [name for name in names if Path(above, name).is_symlink()]
        files = [name for name in files if not is_by_product(name)]
        yield from (Path(above, name) for name in sorted([*files, *links]))


def _content(path: Path, mode: int) -> bytes:
    """A file's hash and executable bit, or a link's target."""
    if stat.S_ISLNK(mode):
        return b"l" + os.fsencode(path.readlink())
    if not stat.S_ISREG(mode):
        return b"o"
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").digest()
    return (b"x" if mode & stat.S_IXUSR else b"f") + content
