"""Measures many worktrees of one repository at once: ``python -P -m benchmarks.worktrees [N]``.

Makes a repository of 2,000 files (20 MB), gives N sessions (50) a worktree each, as many at a time
as the machine has cores, lets each change a file, commits and removes them. Prints the time of each
part, the disk that they take, what `git gc` takes and does beside them, and what one round of the
rescue reads while all are at work and after all have ended.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from workers.git.git import Git
from workers.git.layout import open_worktrees, read_record, write_record
from workers.git.own_folders import Home, close_folder, discard_folder, open_folder

FILES, BYTES = 2_000, 10_000
MOST = 1_000_000_000


def main() -> None:
    """Measure, and print a line for each part."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    with tempfile.TemporaryDirectory() as folder:
        repo, root = Path(folder, "repo"), Path(folder, "worktrees")
        _make_repository(repo)
        homes = [Home(root, f"{number:08x}", repo, "") for number in range(count)]
        before = _disk(repo / ".git")
        _say("one alone", _timed(lambda: _open(homes[0])), 1)
        _say("the others at once", _each(_open, homes[1:]), count - 1)
        _say_disk("a worktree", _disk(root) / count)
        _say_disk("in .git, each", (_disk(repo / ".git") - before) / count)
        _say("a round of the rescue, all at work", _timed(lambda: _read(root)), count)
        _each(_work, homes)
        _say("commit in each", _each(_close, homes), count)
        objects = _disk(repo / ".git" / "objects")
        _say("git gc beside them", _timed(lambda: _git(repo, "gc", "-q")), 1)
        _say_disk("objects before gc", objects)
        _say_disk("objects after gc", _disk(repo / ".git" / "objects"))
        _git(repo, "fsck", "--strict")
        for home in homes:
            record = home.require_record()
            write_record(home.path, record.model_copy(update={"over": True}))
        _say("a round of the rescue, all ended", _timed(lambda: _read(root)), count)
        _say("records that it read before", _timed(lambda: _read_all(root)), count)
        _say("remove each", _each(_discard, homes), count)
        assert not any(home.path.exists() for home in homes)


def _make_repository(repo: Path) -> None:
    random.seed(1)
    repo.mkdir()
    _git(repo, "init", "-q", "-b", "main")
    for number in range(FILES):
        file = repo / f"{number % 40}" / f"{number}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(random.choices("abcdefgh \n", k=BYTES)))
    _git(repo, "add", "-A")
    _git(repo, "commit", "-q", "-m", "Begin")
    _git(repo, "gc", "-q")


def _open(home: Home) -> None:
    open_folder(Git(home.origin), home, most=MOST)


def _work(home: Home) -> None:
    (home.path / "0" / "0.txt").write_text(home.session)


def _close(home: Home) -> None:
    close_folder(Git(home.origin), home, "Work", None)


def _discard(home: Home) -> None:
    removed = discard_folder(Git(home.origin), home, force=True)
    assert not removed.kept, removed.kept


def _read(root: Path) -> None:
    for path in open_worktrees(root):
        read_record(path)


def _read_all(root: Path) -> None:
    for file in root.glob("*/*/*.json"):
        read_record(file.with_suffix(""))


def _each(do: Callable[[Home], None], homes: Iterable[Home]) -> float:
    """The seconds for all of them, as many at a time as the machine has cores."""

    def all_of_them() -> None:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(do, homes))

    return _timed(all_of_them)


def _timed(do: Callable[[], None]) -> float:
    begun = time.perf_counter()
    do()
    return time.perf_counter() - begun


def _disk(folder: Path) -> int:
    """The bytes that a folder takes on the disk."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def _git(folder: Path, *arguments: str) -> None:
    named = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ("git", *named, *arguments)
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def _say(what: str, seconds: float, count: int) -> None:
    each = "" if count == 1 else f", {seconds / count * 1000:.2f} ms each"
    print(f"{what:36} {seconds:8.3f} s{each}")


def _say_disk(what: str, size: float) -> None:
    print(f"{what:36} {size / 1e6:8.2f} MB")


if __name__ == "__main__":
    main()
