"""Services that nobody uses cost next to nothing."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
from redis import Redis

from leadhand.client.client import Client
from leadhand.contract.here import Here
from leadhand.local.connect import ensure
from leadhand.local.services import read_run
from leadhand.settings import environment
from tasks.periodic import QUIET_S
from tests.integration.embedded.test_embedded import end, tree
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

#: Commands a second, with those within functions: there are 43 while no thread rests.
MOST_COMMANDS = 18.0
#: Seconds for which the time of all processes is counted.
SPAN_S = 60.0
#: Below 0.008 while ten other processes are at work on two cores: then a wake-up costs twice as
#: much.
MOST_OF_A_CORE = 0.01


@pytest.fixture
def folder(home: Path):
    yield home.parent
    end(home)


def test_idle_services_take_a_hundredth_of_a_core_and_wake_at_once(folder: Path) -> None:
    (folder / "agents.toml").write_text('[agents.own]\ncommand = ["true"]\n')
    env = {name: value for name, value in environment().items() if "LEADHAND" not in name}
    with ensure(folder / ".leadhand", env=env | {"LEADHAND_LINGER": "600"}) as connection:
        home = connection.home
        here = Here(folder=folder)  # the worker goes on to report on its definitions
        with Client(connection.url, connection.token, here=here) as client:
            before = client.wait(client.submit(loop(folder)).id).session_id
    url = read_run(home)["redis_url"]
    with Redis.from_url(url) as redis:
        # An examination of Redis makes some of the counts larger.
        wait_until(lambda: commands_a_second(redis) <= MOST_COMMANDS, timeout=QUIET_S + 40)
        family, began = tree(home), time.monotonic()
        spent = cpu_s(family)
        time.sleep(SPAN_S)
        share = (cpu_s(family) - spent) / (time.monotonic() - began)
    assert share < MOST_OF_A_CORE, f"{100 * share:.2f} % of a core"
    with Client(connection.url, connection.token) as client:
        ended = client.wait(client.submit(loop(folder)).id, 30)
    assert (ended.status, ended.session_id != before) == ("completed", True)


def loop(folder: Path) -> dict[str, object]:
    return {"kind": "loop", "task": "t", "doer": {"command": "true"}, "checker": "true",
            "cwd": str(folder)}  # fmt: skip


def commands_a_second(redis: Redis, span_s: float = 5.0) -> float:
    def calls() -> int:
        return sum(one["calls"] for one in redis.info("commandstats").values())

    before = calls()
    time.sleep(span_s)
    return (calls() - before) / span_s


def cpu_s(family: list[psutil.Process]) -> float:
    times = [one.cpu_times() for one in family]
    return sum(one.user + one.system for one in times)
