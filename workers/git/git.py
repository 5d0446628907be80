"""Runs git for worktrees: without hooks, prompts and housekeeping, and until it is cancelled.

Unlike a snapshot, a worktree needs the repository's filters: files of Git LFS, for one, are only
complete with them. Git runs none in a repository of another user.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from app.core.folders import MERGE_FOLDER
from leadhand.models.git_settings import settings_as_variables
from workers.processes import environment
from workers.processes.file_system import git_settings
from workers.processes.orphans import no_fork

#: What git says of a lock file. A setting's lock is named by the file that it locks.
_BLOCKED = re.compile(
    r"^.*?(?:[Uu]nable to create '(?P<lock>.+\.lock)'|could not lock config file (?P<config>.+))"
    r": File exists",
    re.MULTILINE,
)
#: The branches and refs in a repository that only Leadhand and its bodies move.
_OWN_REFS = (
    "refs/heads/leadhand/", "refs/leadhand/", "logs/refs/heads/leadhand/", "logs/refs/leadhand/",
)  # fmt: skip
#: Folders of git without lock files that stop a worktree.
_WITHOUT_LOCKS = frozenset({"objects"})
#: Settings without hooks, daemons, housekeeping and signatures that ask for a passphrase. The last
#: ones let no changed file pass for an unchanged one.
_PLAIN = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false",
    "commit.gpgSign=false", "log.showSignature=false", "merge.verifySignatures=false",
    "advice.addEmbeddedRepo=false", "advice.detachedHead=false", "core.trustctime=true",
    "core.checkStat=default", "core.ignoreStat=false",
)  # fmt: skip
#: A diff without the repository's programs that print it, or convert files to text for it.
DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv")
#: The author of commits where the user has set none.
_NAME, _EMAIL = "Leadhand", "leadhand@localhost"
_POLL_S = 0.1
#: How long a lock of another git is waited for. A lock of Leadhand's own that no live git holds for
#: STALE_S was left by one that was killed.
LOCK_WAIT_S, STALE_S = 10.0, 2.0
#: The command that is not simply run again after a lock: half of its work is done.
_NOT_AGAIN = "rebase"
#: How long git may take to remove its locks once it is to end.
_PATIENCE_S = 3.0
#: Characters of git's own words in an error.
_QUOTE = 500


class Identity(NamedTuple):
    """Tells a lock file from a later one with the same name."""

    inode: int
    changed_ns: int


def blocking_lock(stderr: str, folder: Path) -> Path | None:
    """Returns the lock file for which git, called in a folder, could not work; None without one."""
    found = _BLOCKED.search(stderr)
    if found is None:
        return None
    return folder / (found["lock"] or f"{found['config']}.lock")


def identify(lock: Path) -> Identity | None:
    """Returns what tells a lock file from a later one; None if it does not exist."""
    try:
        status = lock.lstat()
    except OSError:
        return None
    return Identity(status.st_ino, status.st_mtime_ns)


def locks_of(path: Path, branch: str) -> list[Path]:
    """Lists the lock files in git's folder of a linked worktree, and those of its branch."""
    admin = _admin_of(path)
    if admin is None:
        return []
    common = _common_of(admin)
    names = (f"refs/heads/{branch}.lock", f"logs/refs/heads/{branch}.lock") if branch else ()
    return [*_locks_in(admin), *(common / one for one in names if (common / one).exists())]


def names_of(printed: str) -> list[str]:
    """Splits what git prints with -z."""
    return [one for one in printed.split("\0") if one]


def is_own(lock: Path) -> bool:
    """Whether a lock file is of a worktree or branch that Leadhand made."""
    if _trees_at(lock) is not None:
        return True
    git_dir = next((one for one in lock.parents if (one / "HEAD").is_file()), None)
    return git_dir is not None and str(lock.relative_to(git_dir)).startswith(_OWN_REFS)


def find_holders(locks: Collection[Path]) -> dict[Path, int]:
    """Returns the pids of processes that may hold these lock files, by file.

    That is a git in one of the folders where the lock can be taken, and each process that has the
    file open. Git closes some locks before it renames them.
    """
    folders = {lock: _trees_at(lock) or _trees_of_repository(lock) for lock in locks}
    names, found = {str(lock): lock for lock in locks}, dict[Path, int]()
    for process in psutil.process_iter(["name", "cwd"], ad_value=None):
        name, cwd = process.info["name"], process.info["cwd"]
        if cwd and (name or "").startswith("git"):
            below = [one for one in locks if _is_below(Path(cwd), folders[one])]
            found.update(dict.fromkeys(below, process.pid))
        with suppress(psutil.Error, OSError):
            opened = (names.get(file.path) for file in process.open_files())
            found.update({lock: process.pid for lock in opened if lock is not None})
    return found


def _is_below(cwd: Path, folders: list[Path]) -> bool:
    return any(cwd.is_relative_to(folder) for folder in folders)


def _trees_at(lock: Path) -> list[Path] | None:
    """Leadhand's worktree to whose folder of git the lock belongs; None for another lock."""
    for admin in lock.parents:
        if not (admin / "commondir").is_file():
            continue
        tree = _tree_of(admin)
        if tree is None:
            return None
        # Leadhand keeps a record beside each of its worktrees (layout.py), except that of merges.
        is_own = tree.name == MERGE_FOLDER or tree.with_name(f"{tree.name}.json").is_file()
        return [tree.resolve(), admin.resolve()] if is_own else None
    return None


def _trees_of_repository(lock: Path) -> list[Path]:
    """All folders in which a git may work that takes a lock of the shared repository."""
    common = next((one for one in lock.parents if (one / "objects").is_dir()), lock.parent)
    trees = [_tree_of(admin) for admin in common.glob("worktrees/*")]
    main = common.parent if common.name == ".git" else common
    return [one.resolve() for one in (main, common, *trees) if one is not None]


def _admin_of(path: Path) -> Path | None:
    """Git's folder of a linked worktree; None for another folder."""
    try:
        text = (path / ".git").read_text()
    except OSError:
        return None
    admin = path / text.removeprefix("gitdir:").strip()
    return admin if (admin / "commondir").is_file() else None


def _common_of(admin: Path) -> Path:
    return (admin / (admin / "commondir").read_text().strip()).resolve()


def _tree_of(admin: Path) -> Path | None:
    try:
        return (admin / (admin / "gitdir").read_text().strip()).parent
    except OSError:
        return None


def _locks_in(admin: Path) -> Iterator[Path]:
    for above, names, files in os.walk(admin):
        names[:] = [name for name in names if name not in _WITHOUT_LOCKS]
        yield from (Path(above, name) for name in files if name.endswith(".lock"))


class WorkspaceRefused(Exception):
    """A folder cannot be made, used or removed; the text says why and what to do."""


class Cancelled(Exception):
    """The attempt was stopped or cancelled while git worked."""


class GitFailed(WorkspaceRefused):
    """Git ended with an error; the text quotes it."""

    def __init__(self, what: str, stderr: str) -> None:
        lines = [line for line in stderr.strip().splitlines() if line.strip()]
        # The first line with a fatal error says more than the hints after it.
        said = next((one for one in lines if one.startswith(("fatal:", "error:"))), "")
        super().__init__(f"git {what} failed: {(said or stderr.strip())[:_QUOTE]}")
        self.stderr = stderr


class GitLocked(WorkspaceRefused):
    """A lock file keeps git from working; the text names it and git's own advice."""

    def __init__(self, lock: Path, holder: int | None) -> None:
        if holder is not None:
            what = f"another git (process {holder}) is at work and holds {str(lock)!r}"
            super().__init__(f"{what}; wait until it has ended, and try again")
        else:
            super().__init__(
                "another git is at work, or was killed and left its lock: make sure that no git"
                " runs in this repository (such as one with an editor open), remove the lock"
                f" (rm {shlex.quote(str(lock))}), and try again"
            )


class GitMissing(WorkspaceRefused):
    """Git is not installed."""

    def __init__(self) -> None:
        super().__init__("git is not installed; install it, or give `workspace: copy`")


@dataclass(frozen=True)
class Git:
    """Runs git in a folder. Raises GitFailed, GitMissing, Cancelled."""

    folder: Path
    cancel: threading.Event = field(default_factory=threading.Event)
    #: On the monotonic clock.
    deadline: float = float("inf")
    #: A lock that git holds too: it outlives a worker that is killed.
    lock: int | None = None
    #: Further variables of git's environment.
    variables: Mapping[str, str] = field(default_factory=dict)

    def at(self, folder: Path) -> Git:
        """Return a runner of git commands in another folder."""
        return Git(folder, self.cancel, self.deadline, self.lock, self.variables)

    def at_own(self, folder: Path) -> Git:
        """Return a runner in a worktree that Leadhand makes."""
        return self.at(folder).writing(folder)

    def writing(self, tree: Path) -> Git:
        """Return a runner that believes no setting about the files of a worktree of Leadhand's.

        What its file system can do is probed: a doer may have set the repository's settings.
        """
        settings = [*git_settings(tree.parent).items()]
        return self.within(settings_as_variables(settings, self.variables))

    def holding(self, lock: int) -> Git:
        """Return a runner whose git processes inherit a lock."""
        return Git(self.folder, self.cancel, self.deadline, lock, self.variables)

    def within(self, variables: Mapping[str, str]) -> Git:
        """Return a runner whose git processes have further variables."""
        more = {**self.variables, **variables}
        return Git(self.folder, self.cancel, self.deadline, self.lock, more)

    def uncancelled(self) -> Git:
        """Return a runner that is neither cancelled nor ended at the deadline.

        It is for calls that change the user's working tree, which must not be half done.
        """
        return Git(self.folder, lock=self.lock)

    def __call__(self, *arguments: str, given: str | None = None) -> str:
        """The output of git without its last line break; `given` is its standard input."""
        code, out, err = self.run(*arguments, given=given)
        if code:
            raise GitFailed(arguments[0], err)
        return out.removesuffix("\n")

    def ask(self, *arguments: str) -> str | None:
        """Run git and return its output, or None if it failed."""
        code, out, _ = self.run(*arguments)
        return None if code else out.removesuffix("\n")

    def run(self, *arguments: str, given: str | None = None) -> tuple[int, str, str]:
        """Run git and return its exit code, its output and its errors.

        If a lock file stops it, it is run again once the lock is gone. Raises GitLocked, and
        GitFailed if a signal ended it: then it has answered nothing.
        """
        until = None
        while True:
            code, out, err = self._run(arguments, None if given is None else os.fsencode(given))
            if code < 0:
                raise GitFailed(arguments[0], f"it was ended by signal {-code}")
            lock = blocking_lock(err, self.folder) if code else None
            if lock is None:
                return code, out, err
            if _NOT_AGAIN in arguments:
                raise GitLocked(lock, find_holders([lock]).get(lock))
            until = until or time.monotonic() + LOCK_WAIT_S
            self._await_lock(lock, until)

    def await_locks(self, files: Iterable[Path]) -> None:
        """Wait until none of these lock files exists. Raises GitLocked."""
        until = time.monotonic() + LOCK_WAIT_S
        for file in files:
            self._await_lock(file, until)

    def remove_stale(self, files: Iterable[Path]) -> None:
        """Remove those of Leadhand's own lock files that no live git holds."""
        seen = {file: identify(file) for file in files if is_own(file)}
        until = time.monotonic() + STALE_S
        while time.monotonic() < until and not all(map(_is_old, seen.values())):
            self._pause()
        held = find_holders(seen) if seen else {}
        for file, known in seen.items():
            if file not in held and identify(file) == known:
                file.unlink(missing_ok=True)

    def _await_lock(self, lock: Path, until: float) -> None:
        """Wait until a lock file is gone, or remove it if it is Leadhand's own and stale."""
        while (seen := identify(lock)) is not None:
            is_late = time.monotonic() >= until
            if _is_old(seen) and is_own(lock):
                self.remove_stale([lock])
            if is_late and identify(lock) is not None:
                raise GitLocked(lock, find_holders([lock]).get(lock))
            self._pause()

    def _pause(self) -> None:
        """Wait for a moment. Raises Cancelled, and WorkspaceRefused at the deadline."""
        if self.cancel.wait(_POLL_S):
            raise Cancelled
        if time.monotonic() >= self.deadline:
            raise WorkspaceRefused("git took too long and was ended")

    def _run(self, arguments: Sequence[str], given: bytes | None) -> tuple[int, str, str]:
        command = ["git", *(part for one in _PLAIN for part in ("-c", one)), *arguments]
        try:
            with no_fork():
                started = subprocess.Popen(  # noqa: S603 - git, with fixed arguments
                    command,
                    cwd=self.folder,
                    env={**_environment(), **self.variables},
                    stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    process_group=0,
                    pass_fds=() if self.lock is None else (self.lock,),
                )
            with started as process:
                out, err = self._output(process, given)
        except FileNotFoundError:
            if not self.folder.is_dir():
                raise WorkspaceRefused(f"{str(self.folder)!r} is not a folder") from None
            raise GitMissing from None
        except OSError as error:
            raise WorkspaceRefused(f"git could not start: {error}") from None
        return process.returncode, os.fsdecode(out), err.decode(errors="replace")

    def _output(self, process: subprocess.Popen[bytes], given: bytes | None) -> tuple[bytes, bytes]:
        while True:
            try:
                return process.communicate(given, timeout=_POLL_S)
            except subprocess.TimeoutExpired:
                given = None  # it is kept, and may be passed once only
                if not self.cancel.is_set() and time.monotonic() < self.deadline:
                    continue
                _end(process)
                if self.cancel.is_set():
                    raise Cancelled from None
                raise WorkspaceRefused("git took too long and was ended") from None


def _is_old(lock: Identity | None) -> bool:
    """Whether a lock file is gone, or so old that no git which takes it for a moment has it."""
    return lock is None or time.time() - lock.changed_ns / 1e9 >= STALE_S


def _end(process: subprocess.Popen[bytes]) -> None:
    """End git, which removes its locks, or kill it."""
    for number, patience in ((signal.SIGTERM, _PATIENCE_S), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=patience)
            return


def _environment() -> dict[str, str]:
    """The environment of git, without the worker's secrets: a repository may name programs.

    It may also name objects to be read in place of others, which were not judged.
    """
    plain = {
        "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }  # fmt: skip
    return {**environment.clean(environment.inherited()), **plain}


def identity(git: Git) -> tuple[str, ...]:
    """Returns git options that set an author, if the user has configured none; else no options."""
    if git.ask("var", "GIT_COMMITTER_IDENT") is not None and git.ask("config", "user.email"):
        return ()
    return ("-c", f"user.name={_NAME}", "-c", f"user.email={_EMAIL}")
