"""Which Redis server a test run uses, and which further ones it finds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leadhand.local.redis_server import Program
from tests import servers


def install(folder: Path, name: str, version: str) -> Path:
    """A program that reports this version and can do nothing else."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    return program


def run(env: dict[str, str], *arguments: str) -> str:
    outside = {name: text for name, text in os.environ.items() if "PINNED_SERVER" not in name}
    done = subprocess.run(
        [sys.executable, "-P", "-m", *arguments],
        env={**outside, **env}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def pytest_header(env: dict[str, str], *arguments: str) -> str:
    here = str(Path(__file__).parents[1] / "leadhand/test_redis_program.py")
    output = run(env, "pytest", "--collect-only", "-p", "no:cacheprovider", here, *arguments)
    (header,) = [line for line in output.splitlines() if line.startswith("server: ")] or [output]
    return header


@pytest.mark.timeout(60)
@pytest.mark.slow
def test_a_server_on_the_path_changes_no_test_run(tmp_path: Path) -> None:
    other = install(tmp_path / "bin", "valkey-server", "Valkey server v=99.9.1 sha=0")
    env = {"PATH": f"{other.parent}{os.pathsep}{os.environ['PATH']}"}
    assert pytest_header(env).startswith("server: Valkey 9.")
    assert pytest_header({}, "--redis-server", str(other)).startswith("server: Valkey 99.9 (")


def test_further_servers_are_found_on_the_path_once_each(tmp_path: Path) -> None:
    redis = install(tmp_path / "bin", "redis-server", "Redis server v=7.0.15 sha=0")
    (tmp_path / "bin" / "valkey-server").symlink_to(redis)
    (found,) = servers.further({"PATH": str(redis.parent)})
    assert (found.kind, found.version) == ("Redis", (7, 0))


def test_the_packaged_server_is_no_further_one(tmp_path: Path) -> None:
    (tmp_path / "valkey-server").symlink_to(servers.packaged().path)
    assert list(servers.further({"PATH": str(tmp_path)})) == []


def test_listed_servers_take_the_place_of_those_on_the_path(tmp_path: Path) -> None:
    on_path = install(tmp_path / "bin", "redis-server", "Redis server v=7.0.15 sha=0")
    listed = install(tmp_path / "other", "redis-8", "Redis server v=8.2.2 sha=0")
    env = {"PATH": str(on_path.parent), servers.LISTED: str(listed)}
    assert list(servers.further(env)) == [Program(listed, "Redis", (8, 2))]
    assert list(servers.further({**env, servers.LISTED: ""})) == []


def test_a_listed_program_that_is_no_server_is_named(tmp_path: Path) -> None:
    odd = install(tmp_path, "redis-server", "what?")
    with pytest.raises(ValueError, match="redis-server is no Redis or Valkey server"):
        list(servers.further({servers.LISTED: str(odd)}))


@pytest.mark.timeout(60)
def test_a_run_without_further_servers_reports_that() -> None:
    output = run({servers.LISTED: ""}, "tests.servers", "--only-further")
    assert output == "servers: no server is installed beside the packaged one\n"


def test_every_file_of_the_subset_exists() -> None:
    folder = Path(servers.__file__).parent
    assert [name for name in servers.FILES if not (folder / name).is_file()] == []
