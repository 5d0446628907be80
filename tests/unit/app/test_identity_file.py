"""The file with the store's id: shared by processes of one folder, and an alarm if unreadable."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.settings import Settings
from app.store.identity import FileMemory, Identity, IdentityUnreadable, memory_of

THREADS, TIMES = 4, 100


def run_at_once(work: Callable[[], object]) -> list[BaseException]:
    """Run in several threads, which all have one pid, as processes of several containers have."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(TIMES):
                work()
        except BaseException as error:  # noqa: BLE001 - the test compares it
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_processes_of_one_pid_probe_one_state_folder_at_once(tmp_path: Path) -> None:
    settings = Settings(redis_url="redis://host/0", state_dir=tmp_path)
    assert run_at_once(lambda: memory_of(settings)) == []
    assert list(tmp_path.iterdir()) == []


def test_processes_of_one_pid_write_one_file_at_once(tmp_path: Path) -> None:
    memory = FileMemory(tmp_path / "store-x.json")
    memory.write(Identity("a" * 32, 1))

    def write_and_read() -> None:
        memory.write(Identity("a" * 32, 1))
        assert memory.read() == Identity("a" * 32, 1)

    assert run_at_once(write_and_read) == []
    assert [file.name for file in tmp_path.iterdir()] == ["store-x.json"]


def test_every_write_reaches_the_disk_before_it_replaces_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def record_fsync(number: int) -> None:
        steps.append("fsync")
        fsync(number)

    def record_replace(path: Path, target: Path) -> Path:
        steps.append("replace")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(Path, "replace", record_replace)
    FileMemory(tmp_path / "file").write(Identity("a", 1))
    assert steps == ["fsync", "replace", "fsync"]  # the file, then its folder


@pytest.mark.parametrize("text", ["", "{", "[]", '{"store": "a"}', '{"store":"a","sweeps":null}'])
def test_file_that_is_there_and_cannot_be_read_is_no_first_start(tmp_path: Path, text: str) -> None:
    memory = FileMemory(tmp_path / "file")
    assert memory.read() is None
    (tmp_path / "file").write_text(text)
    with pytest.raises(IdentityUnreadable, match=str(tmp_path / "file")):
        memory.read()


def test_drafts_of_killed_processes_are_deleted_once_they_are_old(tmp_path: Path) -> None:
    settings = Settings(redis_url="redis://host/0", state_dir=tmp_path)
    for name, age_s in (("draft-old", 7200), ("draft-new", 0)):
        (tmp_path / name).touch()
        then = (tmp_path / name).stat().st_mtime - age_s
        os.utime(tmp_path / name, (then, then))
    memory_of(settings)
    assert [file.name for file in tmp_path.iterdir()] == ["draft-new"]
