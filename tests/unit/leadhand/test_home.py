"""The state folder: its permissions, its files, and the error if it cannot be used."""

from __future__ import annotations

import errno
import os
import pickle
import stat
import sys
from pathlib import Path

import pytest

from leadhand.local import user_state
from leadhand.local.errors import (
    EmbeddedError,
    FolderUnfit,
    RedisForeign,
    RedisMissing,
    RedisNotStarted,
    StackElsewhere,
    StackNotStarted,
    UserStateUnfit,
)
from leadhand.local.supervisor import rotate_logs


def test_folder_is_closed_to_others_and_hidden_from_git(home: Path):
    user_state.prepare(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert (home / ".gitignore").read_text() == "*\n"


def test_folder_that_was_open_is_closed(home: Path):
    home.mkdir(mode=0o755)
    user_state.prepare(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "read-only file system"),
        (errno.EACCES, "may not be written to"),
        (errno.ENOLCK, "has no locks"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_failed_call_is_told_with_the_way_out(home: Path, number: int, why: str):
    with (
        pytest.raises(FolderUnfit, match=why) as told,
        user_state.fit(home),
    ):
        raise OSError(number, os.strerror(number))
    assert "LEADHAND_HOME" in str(told.value)


@pytest.mark.skipif(sys.platform != "linux", reason="asks for a folder that nobody may write to")
def test_folder_where_nothing_can_be_made_is_named():
    with pytest.raises(FolderUnfit, match=r"/sys/\.leadhand"):
        user_state.prepare(Path("/sys/.leadhand"))


def test_written_file_is_its_owners_only_and_whole(home: Path):
    user_state.prepare(home)
    user_state.write_fields(home / "run.json", {"pid": 1, "url": "u"})
    assert user_state.read_fields(home / "run.json") == {"pid": 1, "url": "u"}
    assert stat.S_IMODE((home / "run.json").stat().st_mode) == 0o600
    assert [path.name for path in home.glob("run.json*")] == ["run.json"]


@pytest.mark.parametrize("content", ["", '{"pid": ', "[1]"])
def test_cut_file_holds_nothing(tmp_path: Path, content: str):
    (tmp_path / "run.json").write_text(content)
    assert user_state.read_fields(tmp_path / "run.json") == {}


def test_tail_is_of_what_came_since(tmp_path: Path):
    log = tmp_path / "x.log"
    log.write_text("old\n")
    since = user_state.size(log)
    with log.open("a") as file:
        file.writelines(f"line {number}\n" for number in range(100))
    assert user_state.tail(log, since=since).splitlines()[-1] == "line 99"
    assert len(user_state.tail(log).splitlines()) == 15
    assert user_state.tail(tmp_path / "none.log") == ""


def test_log_that_grew_too_large_begins_anew_for_who_appends(tmp_path: Path):
    log = tmp_path / "x.log"
    with log.open("a") as writer:
        writer.write("long ago\n")
        writer.flush()
        rotate_logs(tmp_path, largest=5)
        writer.write("now\n")
    assert (tmp_path / "x.log.1").read_text() == "long ago\n"
    assert log.read_text() == "now\n"
    rotate_logs(tmp_path, largest=5)
    assert log.read_text() == "now\n"


@pytest.mark.parametrize(
    "error",
    [
        RedisMissing(("valkey-server on PATH: not found",)),
        RedisForeign("/x/redis", "Valkey 9.1", "/bin/valkey-server", ("redis-server: Redis 7.0",)),
        RedisNotStarted("/bin/redis-server", "it ended at once", "last line"),
        FolderUnfit("/x", "the disk is full"),
        UserStateUnfit("/x", "the disk is full"),
        StackNotStarted("/x", "api ended 3 times in a row", "last line"),
        StackElsewhere("/x", "they run elsewhere", "go there"),
    ],
)
def test_every_error_pickles_and_reads_the_same(error: EmbeddedError):
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
