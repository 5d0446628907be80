"""The lock of a repository's worktrees: who has it, and for how long."""

from __future__ import annotations

import os
import posix
import subprocess
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from workers.git.git import Cancelled, Git
from workers.git.layout import Shelf


def is_free(shelf: Shelf) -> bool:
    """Whether the lock can be taken at once."""
    given_up = threading.Event()
    given_up.set()
    try:
        with shelf.locked(given_up):
            return True
    except Cancelled:
        return False


def fork(run: Callable[[], object]) -> int:
    """Run a function in a fork of this process; returns the fork's process id.

    The fork ends with 0 for a true result. An error must not leave it: it would go through the
    other tests as a second test process. It does not end by `os._exit`: coverage puts a function
    there that saves first, which takes minutes late in a run.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        status = 0 if run() else 1
    except BaseException:  # noqa: BLE001 - it must not leave the fork
        traceback.print_exc()
    finally:
        posix._exit(status)


@contextmanager
def forked() -> Iterator[None]:
    """A fork of this process, as a worker forks its pool processes; it lives until the end."""
    wait, end = os.pipe()

    def live() -> bool:
        os.close(end)
        return not os.read(wait, 1)

    pid = fork(live)
    os.close(wait)
    try:
        yield
    finally:
        os.close(end)
        assert os.waitpid(pid, 0)[1] == 0


def test_lock_excludes_others_while_it_is_held(tmp_path: Path) -> None:
    shelf = Shelf.of(tmp_path, tmp_path)
    with shelf.locked(threading.Event()):
        assert not is_free(shelf)
    assert is_free(shelf)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork_of_a_worker_does_not_keep_the_lock_that_another_thread_holds(tmp_path: Path) -> None:
    shelf = Shelf.of(tmp_path, tmp_path)
    holds, release = threading.Event(), threading.Event()

    def hold() -> None:
        with shelf.locked(threading.Event()):
            holds.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert holds.wait(30)
        with forked():
            assert not is_free(shelf)
            release.set()
            thread.join(30)
            wait_until(lambda: is_free(shelf), timeout=30)
    finally:
        release.set()
        thread.join(30)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork_takes_the_lock_as_any_process_does(tmp_path: Path) -> None:
    shelf = Shelf.of(tmp_path, tmp_path)
    assert os.waitpid(fork(lambda: is_free(shelf)), 0)[1] == 0


class Fork:
    """A fork in another thread, which may have to wait."""

    def __init__(self) -> None:
        self._forked = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        pid = fork(lambda: True)
        self._forked.set()
        os.waitpid(pid, 0)

    @property
    def waits(self) -> bool:
        return not self._forked.wait(0.5)

    def join(self) -> None:
        self._thread.join(30)
        assert self._forked.is_set()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork_waits_until_git_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, forks, waited = subprocess.Popen, list[Fork](), list[bool]()

    def start_beside_a_fork(*arguments: Any, **more: Any) -> Any:
        forks.append(Fork())
        waited.append(forks[-1].waits)
        return start(*arguments, **more)

    monkeypatch.setattr(subprocess, "Popen", start_beside_a_fork)
    assert Git(tmp_path)("version").startswith("git version")
    for fork in forks:
        fork.join()
    assert waited == [True]
