"""Commands and services of different versions, or with different settings, in one state folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import leadhand
from leadhand.errors import SettingInvalid
from leadhand.local.connect import Connection
from leadhand.local.errors import StackElsewhere
from leadhand.local.versions import own_version
from leadhand.settings import environment
from tests.integration.embedded.test_embedded import (  # noqa: F401 - fixtures
    STAND_INS,
    Join,
    folder,
    join,
    run_of,
    tree,
)
from tests.processes import kill, runs, words
from tests.waiting import wait_until

pytestmark = pytest.mark.no_cover


def play(connection: Connection, **fields: str) -> None:
    """Let the services look like those of another version."""
    run = run_of(connection.home)
    (connection.home / "run.json").write_text(json.dumps(run | fields))


def test_services_name_their_version_and_interpreter(join: Join) -> None:  # noqa: F811
    run = run_of(join().home)
    assert (run["version"], run["python"], run["api"]) == (own_version(), sys.executable, "1")


def test_idle_services_of_an_older_version_are_replaced(join: Join) -> None:  # noqa: F811
    before = join(linger_s=600)
    old = tree(before.home)
    play(before, version="0.0.1")
    before.close()
    after = join()
    assert not any(map(runs, old))
    assert run_of(after.home)["version"] == own_version()
    assert (after.url, after.token) == (before.url, before.token)


def test_services_that_another_command_uses_are_not_replaced(join: Join) -> None:  # noqa: F811
    before = join()
    play(before, version="0.0.1")
    said: list[str] = []
    join(say=said.append)
    assert run_of(before.home)["version"] == "0.0.1"
    assert said == [
        "the services are of version 0.0.1 and busy; "
        f"`leadhand restart` starts those of {own_version()}"
    ]


def test_busy_services_of_an_older_version_are_used_and_it_is_said_once(
    join: Join,  # noqa: F811
) -> None:
    before = join(linger_s=600)
    (before.home / "live").touch()
    play(before, version="0.0.1")
    before.close()
    said: list[str] = []
    for _ in range(2):
        join(linger_s=600, say=said.append).close()
    assert len(said) == 1
    assert run_of(before.home)["version"] == "0.0.1"
    (before.home / "live").unlink()


def test_busy_services_with_another_api_are_refused(join: Join) -> None:  # noqa: F811
    before = join()
    play(before, version="0.0.1", api="0")
    with pytest.raises(StackElsewhere, match="`leadhand restart`"):
        join()


def test_an_older_command_uses_newer_services_and_says_nothing(join: Join) -> None:  # noqa: F811
    before = join(linger_s=600)
    play(before, version="99.0")
    before.close()
    said: list[str] = []
    join(linger_s=600, say=said.append)
    assert said == []
    assert run_of(before.home)["version"] == "99.0"


def test_an_older_command_starts_nothing_on_newer_data(join: Join) -> None:  # noqa: F811
    before = join()
    kill(tree(before.home))
    before.close()
    newer = {"version": "99.0", "python": "/newer/python"}
    (before.home / "version.json").write_text(json.dumps(newer))
    log = (before.home / "log" / "redis.log").read_text()
    with pytest.raises(StackElsewhere, match=r"Leadhand 99\.0 .* use that of /newer/python"):
        join()
    assert (before.home / "log" / "redis.log").read_text() == log


def test_a_service_that_ends_after_an_upgrade_in_place_ends_all(home: Path, tmp_path: Path) -> None:
    """One service of new code beside old ones may not fit."""
    root = tmp_path / "installed"
    source = Path(leadhand.__file__).parent
    shutil.copytree(source, root / "leadhand", ignore=shutil.ignore_patterns("__pycache__"))
    env = {name: text for name, text in environment().items() if "LEADHAND" not in name}
    supervisor = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "leadhand.local.supervisor", "--foreground"),
            *("--home", str(home), "--commands", json.dumps(STAND_INS._asdict())),
        ],
        env=env | {"PYTHONPATH": str(root)},
    )
    is_up = home / "worker"
    wait_until(lambda: is_up.exists() and (home / "run.json").exists(), timeout=60)
    family = tree(home)

    def kill_worker() -> None:
        """Not its guard, whose command line ends with the same word."""
        [*_, found] = [one for one in tree(home) if words(one)[-1:] == ["worker"]]
        is_up.unlink()
        found.kill()

    kill_worker()  # without an upgrade, it is started again
    log = home / "log" / "supervisor.log"
    wait_until(is_up.exists, timeout=60)
    (root / "leadhand" / "errors.py").write_text("'the code of a newer version'")
    kill_worker()
    assert supervisor.wait(timeout=60) == 0
    assert not any(map(runs, family))
    assert not (home / "run.json").exists()
    assert not log.exists()  # in the foreground it writes to the terminal


def test_settings_that_differ_from_those_in_force_are_named(
    join: Join,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env = {name: text for name, text in environment().items() if "LEADHAND" not in name}
    join(env=env | {"LEADHAND_LEASE_S": "9"})
    said: list[str] = []
    join(env=env, say=said.append)
    join(env=env | {"LEADHAND_LEASE_S": "9", "LEADHAND_SESSION": "x"}, say=said.append)
    assert said == []
    join(env=env | {"LEADHAND_LEASE_S": "8", "LEADHAND_PLACE": "here"}, say=said.append)
    assert said == [
        "LEADHAND_LEASE_S, LEADHAND_PLACE differ from what the services use; "
        "`leadhand restart` applies them"
    ]


def test_settings_are_read_from_the_users_file(join: Join, tmp_path: Path) -> None:  # noqa: F811
    env = {name: text for name, text in environment().items() if "LEADHAND" not in name}
    env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    file = tmp_path / "config" / "leadhand" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("leese_s = 4\n")
    with pytest.raises(SettingInvalid, match=r"leese_s in .*config.toml.*'lease_s'"):
        join(env=env)
    file.write_text('lease_s = 4\nplace = "laptop"\nconcurrency = 3\n')
    connection = join(env=env | {"LEADHAND_CONCURRENCY": "5"})
    given = json.loads((connection.home / "environment.json").read_text())
    names = ("LEASE_S", "PLACE", "CONCURRENCY")
    assert [given[f"LEADHAND_{name}"] for name in names] == ["4", "laptop", "5"]
    said: list[str] = []
    file.write_text("lease_s = 6\n")
    join(env=env, say=said.append)
    assert len(said) == 1
    assert said[0].startswith("LEADHAND_LEASE_S differs from")
