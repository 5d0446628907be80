"""The embedded server against real processes: durable, closed to others, and never an orphan."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from leadhand.local.errors import FolderUnfit, RedisForeign, RedisNotStarted
from leadhand.local.redis_server import Program, RedisServer, find_program
from tests.processes import runs, words
from tests.waiting import wait_until


@pytest.fixture
def server(home: Path) -> Iterator[RedisServer]:
    with RedisServer(home) as server:
        yield server


def client(server: RedisServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def process(server: RedisServer) -> psutil.Process:
    with client(server) as link:
        return psutil.Process(link.info("server")["process_id"])


def test_server_keeps_all_it_is_told_and_evicts_nothing(server: RedisServer):
    with client(server) as link:
        settings = link.config_get()
    expected = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "databases": "4",
        "aof-load-truncated": "yes",
        "bind": "127.0.0.1",
    }
    assert {name: settings[name] for name in expected} == expected


def test_server_lets_nobody_in_without_the_password(server: RedisServer):
    open_url = "redis://" + server.url.partition("@")[2]
    with redis.Redis.from_url(open_url) as link, pytest.raises(redis.AuthenticationError):
        link.ping()


def test_password_shows_in_no_command_line(server: RedisServer):
    password = server.url.split(":")[2].partition("@")[0]
    family = [process(server), *process(server).parents()]
    assert not any(password in " ".join(words(one)) for one in family)


def test_only_the_owner_may_look_into_the_folder(server: RedisServer, home: Path):
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    for name in ("redis.conf", "endpoint.json", "lock"):
        assert stat.S_IMODE((home / "redis" / name).stat().st_mode) == 0o600


#: A server that takes a second to end.
SLOW = """\
#!/bin/sh
exec 3<&0
{path} - <&3 &
trap 'sleep 1; kill -TERM '$!'; wait '$!'; exit' TERM
wait
"""


def test_urgent_stop_leaves_a_slow_server_the_time_to_write_its_data(home: Path, tmp_path: Path):
    found = find_program()
    slow = tmp_path / "slow"
    slow.write_text(SLOW.format(path=found.path))
    slow.chmod(0o755)
    server = RedisServer(home, program=found._replace(path=slow))
    server.start()
    server.stop(lambda: True)
    assert "is now ready to exit" in server.output()


def test_killed_server_has_lost_nothing_and_is_back_at_its_address(home: Path):
    server = RedisServer(home)
    first_url = server.start()
    with client(server) as link:
        link.set("kept", "yes")
    server.kill()
    assert server.start() == first_url
    with client(server) as link:
        assert link.get("kept") == "yes"
    server.stop()


def test_cut_tail_of_the_append_only_file_is_forgiven(home: Path):
    with RedisServer(home) as server, client(server) as link:
        link.set("first", "whole")
        link.set("second", "cut" * 100)
    (log,) = (home / "redis" / "appendonlydir").glob("*.incr.aof")
    os.truncate(log, log.stat().st_size - 50)
    with RedisServer(home) as server, client(server) as link:
        assert link.mget("first", "second") == ["whole", None]


def test_taken_port_makes_way_for_another(home: Path):
    with RedisServer(home) as server:
        old = server.url
    with RedisServer(home.parent / "other" / ".leadhand") as thief:
        # The thief sits where the first server was.
        port = int(thief.url.rpartition(":")[2].removesuffix("/0"))
        (home / "redis" / "endpoint.json").write_text(f'{{"port": {port}, "password": "x"}}')
        with RedisServer(home) as server, client(server) as link:
            assert link.ping()
            assert server.url not in (old, thief.url)


def test_second_server_on_one_folder_waits_for_the_first_to_be_gone(
    server: RedisServer, home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("leadhand.local.redis_server._STOP_S", 0.2)
    with pytest.raises(RedisNotStarted, match="another server still uses its folder"):
        RedisServer(home).start()


def test_server_dies_with_a_starter_that_was_killed(home: Path):
    script = (
        "import sys, pathlib, signal; from leadhand.local.redis_server import RedisServer; "
        "print(RedisServer(pathlib.Path(sys.argv[1])).start(), flush=True); signal.pause()"
    )
    starter = subprocess.Popen(
        [sys.executable, "-P", "-c", script, str(home)], stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout
    url = starter.stdout.readline().strip()
    with redis.Redis.from_url(url) as link:
        server = psutil.Process(link.info("server")["process_id"])
    starter.kill()
    starter.communicate()
    wait_until(lambda: not runs(server), timeout=15)


def test_server_that_cannot_start_says_why(home: Path):
    RedisServer(home)
    broken = Program(Path("/bin/false"), "Valkey", (9, 0))
    with pytest.raises(RedisNotStarted, match="it ended at once"):
        RedisServer(home, program=broken).start()


def test_broken_data_is_told_with_the_end_of_the_log(home: Path):
    with RedisServer(home) as server, client(server) as link:
        link.set("a", "b")
    (log,) = (home / "redis" / "appendonlydir").glob("*.incr.aof")
    log.write_bytes(b"nonsense\r\n" + log.read_bytes())
    with pytest.raises(RedisNotStarted, match="Bad file format"):
        RedisServer(home).start()


def test_older_server_does_not_start_beside_data_that_it_cannot_see(home: Path):
    with RedisServer(home):
        pass
    old = Program(Path("/usr/bin/redis-server"), "Redis", (6, 2))
    with pytest.raises(RedisForeign, match="was written by Valkey"):
        RedisServer(home, program=old).start()


def test_file_in_the_way_of_the_folder_is_named(tmp_path: Path):
    (tmp_path / ".leadhand").write_text("")
    with pytest.raises(FolderUnfit, match="a file of that name is in the way"):
        RedisServer(tmp_path / ".leadhand").start()


def test_very_long_path_does_not_matter(tmp_path: Path):
    deep = tmp_path
    for number in range(12):
        deep = deep / (f"folder {number} " + "x" * 80)
    deep.mkdir(parents=True)
    with RedisServer(deep / ".leadhand") as server, client(server) as link:
        assert link.ping()
