"""The working folder as it was at one moment: its digest, and the difference between two of them.

Where it is a git repository, git itself says what counts: tracked files and those that are neither
tracked nor ignored. Nothing of the user's is written: index and objects are our own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from workers import environment

#: How long one look at a folder may take; one that takes longer tells nothing.
SNAPSHOT_S = 10.0
#: How long a folder that took longer is left alone.
REST_S = 600.0
#: How much of a difference is kept, in bytes.
PATCH_BYTES = 200_000
#: Files of a folder without git, and bytes in them, that are read at most.
FILES, READ_BYTES = 20_000, 512 * 1024 * 1024
#: What is not work: our own state, and git's.
_NOT_WORK = frozenset({".leadhand", ".git"})
#: No hook, no daemon, no housekeeping, nothing rewritten on the way in.
_PLAIN = (
    "core.fsmonitor=false", "core.untrackedCache=false", "core.hooksPath=/dev/null", "gc.auto=0",
    "core.autocrlf=false", "core.safecrlf=false", "advice.addEmbeddedRepo=false",
)  # fmt: skip


class Worktree:
    """One session's view of its folder, with what it has to remember in a folder of its own."""

    def __init__(self, folder: Path, shelf: Path) -> None:
        self._folder = folder
        self._shelf = shelf
        self._slow = shelf / "slow"
        self._deadline = 0.0
        self._env: dict[str, str] | None = None
        self._unfiltered: tuple[str, ...] = ()

    def snapshot(self) -> str | None:
        """The folder's digest: ``git:TREE`` or ``files:HASH``; None where that takes too long.

        One that took too long is not tried again for some minutes: it holds up each step.
        """
        if self._rests():
            return None
        self._deadline = time.monotonic() + SNAPSHOT_S
        try:
            prefix = self._opened()
            found = self._of_files() if prefix is None else self._of_git(prefix)
        except subprocess.TimeoutExpired:
            found = None
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
        if found is None:
            self._rest()
        return found

    def _rests(self) -> bool:
        try:
            return abs(time.time() - self._slow.stat().st_mtime) < REST_S
        except OSError:
            return False

    def _rest(self) -> None:
        """Leave the folder alone for some time, and nothing of what was begun for nobody."""
        with suppress(OSError):
            self._shelf.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._slow.touch()
            for begun in self._shelf.glob("objects/*/tmp_*"):
                begun.unlink(missing_ok=True)

    def knows(self, digest: str | None) -> bool:
        """Whether what the digest stands for can still be compared here."""
        tree = _tree(digest)
        if tree is None:
            return False
        self._deadline = time.monotonic() + SNAPSHOT_S
        try:
            if self._opened() is None:
                return False
            self._git("cat-file", "-e", f"{tree}^{{tree}}")
        except (OSError, subprocess.SubprocessError):
            return False
        return True

    def patch(self, before: str | None, after: str | None) -> str | None:
        """What changed from one snapshot to another, cut; None where git cannot say."""
        old, new = _tree(before), _tree(after)
        if old is None or new is None:
            return None
        self._deadline = time.monotonic() + SNAPSHOT_S
        told = ("diff-tree", "-r", "-p", "-M", "--no-ext-diff", "--no-textconv", "--no-color")
        try:
            return self._cut(*told, old, new)
        except (OSError, subprocess.SubprocessError):
            return None

    def _of_git(self, prefix: str) -> str:
        index = self._shelf / "index"
        (self._shelf / "index.lock").unlink(missing_ok=True)  # whoever held it was killed
        if not index.exists():
            theirs = self._folder / self._git("rev-parse", "--git-path", "index", own=False)
            if theirs.is_file():
                shutil.copyfile(theirs, index)
        self._forget_repositories()
        self._git("add", "-A", "--", ".", ":(exclude,glob)**/.leadhand/**")
        given = ("--prefix", prefix) if prefix and self._git("ls-files", "--", ".") else ()
        return f"git:{self._git('write-tree', *given)}"

    def _forget_repositories(self) -> None:
        """Let those within this one be added anew: so git takes their commit and looks no further.

        Of one that the index knows it asks whether something in there has changed, by a git that
        runs the filters of that repository's own configuration.
        """
        listed = self._told("ls-files", "--stage", "-z").split(b"\0")
        links = [os.fsdecode(line.partition(b"\t")[2]) for line in listed if _is_link(line)]
        for at in range(0, len(links), 500):
            self._git("update-index", "--force-remove", "--", *links[at : at + 500])

    def _opened(self) -> str | None:
        """Where in its repository the folder lies, its shelf made ready; None without git."""
        try:
            told = self._git("rev-parse", "--show-prefix", "--git-path", "objects", own=False)
        except (OSError, subprocess.CalledProcessError):
            return None
        prefix, _, objects = told.rpartition("\n")
        if self._env is None:
            info = self._shelf / "objects" / "info"
            info.mkdir(mode=0o700, parents=True, exist_ok=True)
            (info / "alternates").write_text(f"{(self._folder / objects).resolve()}\n")
            self._unfiltered = self._filters()
            self._env = {
                "GIT_INDEX_FILE": str(self._shelf / "index"),
                "GIT_OBJECT_DIRECTORY": str(self._shelf / "objects"),
            }
        return prefix.strip("\n")

    def _filters(self) -> tuple[str, ...]:
        """Settings by which no filter of the repository runs: each is a program of somebody's."""
        try:
            named = self._git("config", "--name-only", "--get-regexp", r"^filter\.", own=False)
        except subprocess.CalledProcessError:  # there is none
            return ()
        drivers = {name.rpartition(".")[0] for name in named.splitlines()}
        return tuple(
            f"{driver}.{part}"
            for driver in sorted(drivers)
            for part in ("clean=", "smudge=", "process=", "required=false")
        )

    def _git(self, *arguments: str, own: bool = True) -> str:
        return self._told(*arguments, own=own).decode(errors="replace").strip("\n")

    def _cut(self, *arguments: str) -> str:
        """The first of what git writes, however much that is."""
        taken = self._told(*arguments, most=PATCH_BYTES + 1)
        if len(taken) <= PATCH_BYTES:
            return taken.decode(errors="replace")
        # Half a line may hold half a secret, which nobody would know for one.
        text = taken[: taken.rfind(b"\n", 0, PATCH_BYTES) + 1].decode(errors="replace")
        return f"{text}[... the rest is left out ...]\n"

    def _told(self, *arguments: str, own: bool = True, most: int = -1) -> bytes:
        """What git writes, so many bytes of it; git and all that it began end with the time."""
        command = _command(self._unfiltered, *arguments)
        with subprocess.Popen(  # noqa: S603 - git, with arguments of ours
            command,
            cwd=self._folder,
            env=self._environment(own=own),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        ) as process:
            taken = _read(process, most, max(0.1, self._deadline - time.monotonic()))
        if process.returncode and len(taken) != most:
            raise subprocess.CalledProcessError(process.returncode, command)
        return taken

    def _environment(self, *, own: bool) -> dict[str, str]:
        """Nothing of the worker's own: a repository may name programs to be run."""
        plain = {**environment.clean(environment.inherited()), "LC_ALL": "C"}
        plain |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
        # What the repository lacks is not fetched: that is a program of its choice too.
        plain |= {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
        return plain | (self._env or {}) if own else plain

    def _of_files(self) -> str | None:
        mixed, files, left = hashlib.sha256(), 0, READ_BYTES
        for path in _walk(self._folder):
            told = path.lstat()
            files, left = files + 1, left - told.st_size
            if files > FILES or left < 0 or time.monotonic() > self._deadline:
                return None
            mixed.update(f"{path.relative_to(self._folder)}\0".encode(errors="surrogateescape"))
            mixed.update(_content(path, told.st_mode))
        return f"files:{mixed.hexdigest()}"


def _read(process: subprocess.Popen[bytes], most: int, seconds: float) -> bytes:
    """What the leader of a process group writes, so many bytes of it; then the group is ended."""
    assert process.stdout is not None
    late = threading.Event()

    def end() -> None:
        with suppress(ProcessLookupError, PermissionError):  # it ended by itself
            os.killpg(process.pid, signal.SIGKILL)

    def tell() -> None:
        late.set()
        end()

    timer = threading.Timer(seconds, tell)
    timer.start()
    try:
        taken = process.stdout.read(most)
        if len(taken) != most:  # its end is waited for, but it keeps its number until it is reaped
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    finally:
        timer.cancel()
        timer.join()
        end()
    if late.is_set():
        raise subprocess.TimeoutExpired(process.args, seconds)
    return taken


def _command(more: tuple[str, ...], *arguments: str) -> list[str]:
    settings = [part for setting in (*_PLAIN, *more) for part in ("-c", setting)]
    return ["git", *settings, *arguments]


def _tree(digest: str | None) -> str | None:
    kind, _, tree = (digest or "").partition(":")
    return tree if kind == "git" else None


def _is_link(line: bytes) -> bool:
    """Whether an entry of the index is another repository's commit."""
    return line.startswith(b"160000 ")


def _walk(folder: Path) -> Iterator[Path]:
    """Every file and link below, in an order that is always the same."""
    for above, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if name not in _NOT_WORK)
        links = [name for name in names if Path(above, name).is_symlink()]
        yield from (Path(above, name) for name in sorted([*files, *links]))


def _content(path: Path, mode: int) -> bytes:
    """What a file comes to: its bytes and whether it can be run; of a link, where to."""
    if stat.S_ISLNK(mode):
        return b"l" + os.fsencode(path.readlink())
    if not stat.S_ISREG(mode):
        return b"o"
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").digest()
    return (b"x" if mode & stat.S_IXUSR else b"f") + content
