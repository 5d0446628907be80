"""`leadhand lock` and `leadhand kv` against an API of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leadhand.client.client import Client
from leadhand.errors import LockTaken
from tests.http_world import TOKEN
from tests.integration.client.test_inbox_commands import PROGRAM, api, child_of, leadhand
from tests.waiting import wait_until

__all__ = ["api", "leadhand"]


def started(api, session: str, *arguments: str, token: str = TOKEN) -> subprocess.Popen[str]:
    env = os.environ | {
        "LEADHAND_URL": api.url, "LEADHAND_TOKEN": token, "LEADHAND_SESSION": session,
    }  # fmt: skip
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_command_runs_under_the_lock_with_its_fence_and_exit_code(api, leadhand):
    session = api.submit()
    code = "import os; print(os.environ['LEADHAND_LOCK'], os.environ['LEADHAND_LOCK_FENCE'])"
    process = started(api, session, "lock", "run", "x", "--", sys.executable, "-c", code)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert out.startswith("x ")
    failed = started(
        api, session, "lock", "run", "x", "--", sys.executable, "-c", "import sys; sys.exit(7)"
    )
    assert failed.wait() == 7
    failed.communicate()
    assert leadhand("lock", "list", session).out == "no locks\n"


def test_bodies_run_one_after_the_other_and_a_killed_attempt_s_lock_is_free(api, tmp_path):
    parent = api.submit()
    child, token = child_of(api, parent)
    marker = tmp_path / "runs"
    code = f"import pathlib, time; pathlib.Path({str(marker)!r}).touch(); time.sleep(60)"
    first = started(
        api, child.id, "lock", "run", "x", "--", sys.executable, "-c", code, token=token
    )
    wait_until(marker.exists)
    with Client(api.url, TOKEN) as client:
        with pytest.raises(LockTaken, match=f"session {child.id}"):
            client.acquire_lock(parent, "x")
        (lock,) = client.locks(parent)
        assert (lock.holder and lock.holder.address) == "a"
        second = started(api, parent, "lock", "run", "x", "--", sys.executable, "-c", "print(1)")
        wait_until(lambda: bool(client.locks(parent)[0].waiting))
        assert f"session {child.id}" in client.explain(parent).text
        first.send_signal(signal.SIGTERM)  # it is passed on, and the lock is released
        assert first.wait() == 128 + signal.SIGTERM
        first.communicate()
        assert second.communicate() == ("1\n", "")
        assert client.locks(parent) == []


def test_a_command_whose_lock_is_lost_is_killed(api, tmp_path):
    session = api.submit()
    marker = tmp_path / "runs"
    code = f"import pathlib, time; pathlib.Path({str(marker)!r}).touch(); time.sleep(60)"
    process = started(
        api, session, "lock", "run", "x", "--ttl", "5", "--", sys.executable, "-c", code
    )
    wait_until(marker.exists)
    with Client(api.url, TOKEN) as client:
        client.stop(session)  # the session held it
    out, err = process.communicate()
    assert (process.returncode, out) == (1, "")
    assert "so the command was killed" in err
    assert len(err.splitlines()) == 1


def test_a_lock_that_is_taken_is_refused_in_one_sentence(api, leadhand):
    session = api.submit()
    with Client(api.url, TOKEN) as client:
        grant = client.acquire_lock(session, "src/a.py", ttl_s=60)
        refused = leadhand(
            "lock", "run", "src/a.py", "--session", session, "--wait", "0", "--", "true"
        )
        assert refused.code == 1
        assert f"lock 'src/a.py' is taken: session {session} since" in refused.err
        listed = leadhand("lock", "list", session).out
        assert f"src/a.py  held by session {session} since" in listed
        assert json.loads(leadhand("lock", "list", session, "--json").out)["fence"] == grant.fence
        assert client.renew_lock(session, grant, ttl_s=60).fence == grant.fence
        assert client.release_lock(session, grant)
    without = leadhand("lock", "run", "x", "--", "true")
    assert "LEADHAND_SESSION not set: name a session" in without.err
    unknown = leadhand("lock", "run", "x", "--session", session, "--", "/no/such/program")
    assert "/no/such/program cannot be started: No such file" in unknown.err
    assert leadhand("lock", "list", session).out == "no locks\n"


def test_values_are_stored_compared_listed_and_deleted(api, leadhand, monkeypatch, tmp_path: Path):
    session = api.submit()
    monkeypatch.setenv("LEADHAND_SESSION", session)
    assert leadhand("kv", "list").out == "no keys\n"
    assert leadhand("kv", "set", "phase", "one").out == "phase  version 1\n"
    assert leadhand("kv", "set", "n", "--json", '{"a": [1]}').code == 0
    assert leadhand("kv", "set", "text", "-", stdin="of standard input").code == 0
    assert leadhand("kv", "get", "phase").out == "one\n"
    assert json.loads(leadhand("kv", "get", "n").out) == {"a": [1]}
    assert leadhand("kv", "get", "text").out == "of standard input\n"
    assert json.loads(leadhand("kv", "get", "phase", "--json").out)["version"] == 1
    stale = leadhand("kv", "set", "phase", "two", "--if-version", "0")
    assert stale.code == 1
    assert "has version 1, but version 0 was expected" in stale.err
    assert leadhand("kv", "set", "phase", "two", "--if-version", "1").code == 0
    lines = leadhand("kv", "list", "ph").out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("phase  version 4  ")
    assert leadhand("kv", "delete", "phase").out == "phase  deleted\n"
    missing = leadhand("kv", "get", "phase")
    assert (missing.code, "has no value under 'phase'" in missing.err) == (1, True)
    assert "VALUE is no JSON" in leadhand("kv", "set", "n", "--json", "{").err
