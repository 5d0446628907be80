"""Snapshots a working folder: its digest, the diff between two snapshots, and a way back to one.

In a git repository a snapshot has the tracked files and the untracked ones that are not ignored.
Nothing in the user's repository is written: the index and the new objects are in a private folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from leadhand.models.git_settings import (
    LIST_FILTERS,
    QUIET,
    filters_in,
    run_programs,
    without_filters,
)
from workers.processes import environment
from workers.processes.by_products import BY_PRODUCTS, is_by_product
from workers.processes.nested_repositories import nested_in, open_nested
from workers.processes.own_folders import claim_session_folder

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
#: Folders that are not part of a snapshot.
_NOT_WORK = frozenset({".leadhand", ".git"})
#: Git's list of by-products.
_BY_PRODUCTS = "".join(f"{pattern}\n" for pattern in BY_PRODUCTS).encode()
#: Git settings without hooks, daemons, housekeeping and line-ending conversion.
_PLAIN = (
    "core.fsmonitor=false", "core.untrackedCache=false", "core.hooksPath=/dev/null", "gc.auto=0",
    "core.autocrlf=false", "core.safecrlf=false", "advice.addEmbeddedRepo=false",
    "submodule.recurse=false",
)  # fmt: skip


#: Why a folder has no git snapshot.
NoGit = Literal["git_missing", "git_refused", "no_git"]


class SnapshotLost(Exception):
    """A folder cannot be set to a snapshot; the text says why."""


class Worktree:
    """Snapshots of one session's working folder; index and objects are in the folder `shelf`."""

    #: Why the last snapshot or diff failed.
    failure: Literal["slow", "unreadable"] | None = None

    def __init__(
        self, folder: Path, shelf: Path, *, lock: int | None = None, is_own: bool = False
    ) -> None:
        self.folder = folder
        #: Whether it is a session's own worktree, so that repositories in it are a doer's work.
        self._is_own = is_own
        #: A file that git keeps open too: its lock outlives a worker that is killed.
        self._lock = lock
        self.shelf = shelf
        self._slow = shelf / "slow"
        self._deadline = 0.0
        self._env: dict[str, str] | None = None

    def snapshot(self) -> str | None:
        """Compute the folder's digest, ``git:TREE`` or ``files:HASH``; None if too slow.

        After a timeout the next try is REST_S later: a snapshot delays its step.
        """
        self.failure = "slow"
        if self._is_resting():
            return None
        self._deadline = time.monotonic() + SNAPSHOT_S
        try:
            prefix = self._open_repository()
            found = self._files_digest() if prefix is None else self._git_digest(prefix)
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

    def why_no_git(self) -> NoGit:
        """Return why the folder's snapshots are made without git."""
        if shutil.which("git") is None:
            return "git_missing"
        above = self.folder.resolve()
        is_inside = any((folder / ".git").exists() for folder in (above, *above.parents))
        return "git_refused" if is_inside else "no_git"

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
            for begun in self.shelf.glob("objects/*/tmp_*"):
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
            prefix = self._open_repository()
            commit = self._git("merge-base", target, "HEAD")
            tree = self._git("rev-parse", "--verify", f"{commit}:{(prefix or '').rstrip('/')}")
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
            self._find_objects()
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
            self._find_objects()
            listed = self._run_git("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new)
        except (OSError, subprocess.SubprocessError):
            return []
        return [os.fsdecode(name) for name in listed.split(b"\0") if name]

    def ignored(self) -> list[str]:
        """Return the files that git ignores, in no folder that is ignored; none on an error."""
        self._deadline = time.monotonic() + SNAPSHOT_S
        options = ("--others", "--ignored", "--exclude-standard", "--directory", "-z")
        try:
            self._find_objects()
            listed = self._run_git("ls-files", *options)
        except (OSError, subprocess.SubprocessError):
            return []
        return [os.fsdecode(name) for name in listed.split(b"\0") if name and name[-1:] != b"/"]

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
        prefix = self._open_repository()
        if prefix is None:
            raise SnapshotLost(f"{str(self.folder)!r} is in no git repository")
        if earlier != self.shelf:
            self._copy_objects(earlier / "objects")
        self._git_digest(prefix)  # so that the index names the files that have to go
        self._git("read-tree", "--reset", "-u", self._whole_tree(prefix, tree))

    def _copy_objects(self, objects: Path) -> None:
        """Link the objects of another session's snapshots: they may be deleted before these."""
        for file in objects.glob("*/*"):
            if file.parent.name == "info" or file.name.startswith("tmp_"):
                continue
            copy = self.shelf / "objects" / file.parent.name / file.name
            copy.parent.mkdir(mode=0o700, exist_ok=True)
            with suppress(FileExistsError):
                copy.hardlink_to(file)

    def _whole_tree(self, prefix: str, tree: str) -> str:
        """The tree of the repository, with the folder replaced by a snapshot of it."""
        if not prefix:
            return tree
        index = self.shelf / "index.whole"
        shutil.copyfile(self.shelf / "index", index)
        self._git("rm", "-r", "-f", "-q", "--cached", "--ignore-unmatch", "--", ".", index=index)
        self._git("read-tree", f"--prefix={prefix}", tree, index=index)
        return self._git("write-tree", index=index)

    def _git_digest(self, prefix: str) -> str:
        index = self.shelf / "index"
        (self.shelf / "index.lock").unlink(missing_ok=True)  # its holder was killed
        if not index.exists():
            theirs = self.folder / self._git("rev-parse", "--git-path", "index", own=False)
            if theirs.is_file():
                shutil.copyfile(theirs, index)
        self._forget_repositories()
        if self._is_own:
            self._note_nested(open_nested(self._raw, self.folder))
        self._add_all()
        options = ("--prefix", prefix) if prefix and self._git("ls-files", "--", ".") else ()
        return f"git:{self._git('write-tree', *options)}"

    @property
    def _nested(self) -> Path:
        """The file with the names of the repositories whose files the snapshots have."""
        return self.shelf / "nested"

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

    def _add_all(self) -> None:
        """Bring the index up to date; a repository in the folder without a commit is left out."""
        setting = f"core.excludesFile={self._write_excludes()}"
        add = ("-c", setting, "add", "-A", "--", ".", ":(exclude,glob)**/.leadhand/**")
        self._add_tracked_by_products()
        try:
            self._git(*add)
        except subprocess.CalledProcessError:
            nested = nested_in(self._raw)
            if not nested:
                raise
            self._git(*add, *(f":(exclude,literal){one}" for one in nested))

    def _write_excludes(self) -> Path:
        """Write what no snapshot has unless it is tracked: by-products, and the user's own list."""
        config = self._environment(own=False)
        home = Path(config.get("XDG_CONFIG_HOME") or Path(config.get("HOME", "/"), ".config"))
        try:
            named = self._git("config", "--type=path", "core.excludesFile", own=False)
        except subprocess.CalledProcessError as error:
            if error.returncode != 1:  # which means that there is none
                raise
            named = ""
        theirs, excludes = (
            Path(named) if named else home / "git" / "ignore",
            self.shelf / "excludes",
        )
        listed = theirs.read_bytes() if theirs.is_file() else b""
        excludes.write_bytes(listed + b"\n" + _BY_PRODUCTS)
        (self.shelf / "by-products").write_bytes(_BY_PRODUCTS)
        return excludes

    def _add_tracked_by_products(self) -> None:
        """Bring by-products that the folder's own index has into the index of the snapshots."""
        patterns = str(self.shelf / "by-products")
        tracked = self._run_git("ls-files", "-z", "-c", "-i", "-X", patterns, "--", ".", own=False)
        names = [os.fsdecode(name) for name in tracked.split(b"\0") if name]
        for at in range(0, len(names), 500):
            self._git("update-index", "--add", "--remove", "--", *names[at : at + 500])

    def left_out(self) -> list[str]:
        """Return the by-products in the folder that git neither tracks nor ignores."""
        self._deadline = time.monotonic() + SNAPSHOT_S
        options = ("-o", "--exclude-standard", "--directory", "--no-empty-directory")
        try:
            listed = self._run_git("ls-files", "-z", *options, own=False).split(b"\0")
        except (OSError, subprocess.SubprocessError):
            return []
        return [name for one in listed if is_by_product(name := os.fsdecode(one))]

    def _raw(self, *arguments: str) -> str:
        return os.fsdecode(self._run_git(*arguments))

    def _forget_repositories(self) -> None:
        """Remove nested repositories from the index, so that `add` records their commit only.

        For a nested repository in the index, git would check for changes inside it with another
        git process, which runs the filters of that repository's own configuration.
        """
        listed = self._run_git("ls-files", "--stage", "-z").split(b"\0")
        links = [os.fsdecode(line.partition(b"\t")[2]) for line in listed if _is_link(line)]
        for at in range(0, len(links), 500):
            self._git("update-index", "--force-remove", "--", *links[at : at + 500])

    def _open_repository(self) -> str | None:
        """Prepare the private folder; return the folder's prefix in its repository, if any."""
        try:
            lines = self._git("rev-parse", "--show-prefix", "--git-path", "objects", own=False)
        except (OSError, subprocess.CalledProcessError):
            return None
        prefix, _, objects = lines.rpartition("\n")
        if self._env is None:
            claim_session_folder(self.shelf)
            info = self.shelf / "objects" / "info"
            info.mkdir(mode=0o700, parents=True, exist_ok=True)
            (info / "alternates").write_text(f"{(self.folder / objects).resolve()}\n")
            self._env = {
                "GIT_INDEX_FILE": str(self.shelf / "index"),
                "GIT_OBJECT_DIRECTORY": str(self.shelf / "objects"),
                **self._without_filters(),
            }
        return prefix.strip("\n")

    def _find_objects(self) -> None:
        """Let git find the objects of the snapshots, unless it does already."""
        if self._env is None:
            self._open_repository()

    def _without_filters(self) -> dict[str, str]:
        """Variables that disable the repository's filters. Raises OSError if git disobeys."""
        filters = self._filters({})
        disabled = without_filters(filters, {})
        if filters and run_programs(self._filters(disabled)):
            raise OSError(
                errno.ENOTSUP, "git is older than 2.31 and cannot be told to run no filter"
            )
        return disabled

    def _filters(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The settings of the repository's filters, by name, with these variables for git."""
        try:
            return filters_in(self._run_git(*LIST_FILTERS, own=False, variables=variables))
        except subprocess.CalledProcessError as error:
            if error.returncode != 1:  # which means that there is none
                raise
            return {}

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
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:
        """Run git and return at most so many bytes of its output; kill its group on timeout."""
        command = _command(*arguments)
        other = {**variables} if index is None else {**variables, "GIT_INDEX_FILE": str(index)}
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
        return plain | (self._env or {}) if own else plain

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


def _tree(digest: str | None) -> str | None:
    kind, _, tree = (digest or "").partition(":")
    return tree if kind == "git" else None


def _is_link(line: bytes) -> bool:
    """Whether an entry of the index is another repository's commit."""
    return line.startswith(b"160000 ")


def _walk(folder: Path) -> Iterator[Path]:
    """Every file and link below the folder, in a stable order."""
    for above, names, files in os.walk(folder):
        names[:] = sorted(one for one in names if one not in _NOT_WORK and not is_by_product(one))
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
