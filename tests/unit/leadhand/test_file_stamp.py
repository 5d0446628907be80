"""A file's stamp changes with the file, and those who keep one never miss a change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leadhand.file_stamp import stamp_of
from tests.waiting import wait_until
from workers.registry.agents import AgentBook
from workers.registry.registries import AgentFiles


def _edit(file: Path) -> None:
    file.write_text("longer than before")


def _edit_in_secret(file: Path) -> None:
    """Keeps the size, and sets the modification time back."""
    before, clock = file.stat(), file.with_suffix(".clock")

    def has_ticked() -> bool:
        clock.touch()
        return clock.stat().st_ctime_ns > before.st_ctime_ns

    wait_until(has_ticked)  # the kernel's clock for files ticks every few milliseconds
    file.write_text("B" * before.st_size)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(file: Path) -> None:
    other = file.with_suffix(".new")
    other.write_text(file.read_text())
    other.replace(file)


@pytest.mark.parametrize("change", [_edit, _edit_in_secret, _replace, Path.unlink])
def test_stamp_differs_after_a_change(tmp_path: Path, change: Callable[[Path], object]):
    file = tmp_path / "one"
    file.write_text("AAAA")
    before = stamp_of(file)
    assert stamp_of(str(file)) == before
    change(file)
    assert stamp_of(file) != before


def test_stamp_differs_once_a_missing_file_exists(tmp_path: Path):
    missing = stamp_of(tmp_path / "one")
    assert stamp_of(tmp_path / "other") == missing
    (tmp_path / "one").touch()
    assert stamp_of(tmp_path / "one") != missing


def test_user_process_imports_nothing_expensive_for_it():
    code = "import sys, leadhand.file_stamp; print('pydantic' in sys.modules)"
    told = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert told.stdout == "False\n", told.stderr


def test_agents_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch):
    file = tmp_path / "agents.toml"
    file.write_text('[agents.first]\ncommand = ["true"]\n')
    load = AgentBook.load

    def load_and_change(*arguments):
        book = load(*arguments)
        file.write_text('[agents.second]\ncommand = ["true"]\n')
        return book

    monkeypatch.setattr(AgentBook, "load", load_and_change)
    agents = AgentFiles([file])
    agents.current()
    assert "second" in agents.current().agents
