"""Three machines: sessions stay where their folder is, and one that vanishes is named and left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from api import create_app
from app.settings import Settings
from tests.fleet import Fleet
from tests.integration.fleet.machines import Killed, Machine, Namespace, Refused
from tests.waiting import wait_until

TOKEN = "the operator's own"
S = "/v1/sessions"
#: Tells in which network it is, and waits for word.
SAYS = """
import os, pathlib, time
pathlib.Path("pid").write_text(str(os.getpid()))
while not pathlib.Path("../go").exists():
    time.sleep(0.02)
print(os.readlink("/proc/self/ns/net"))
"""
PLACES = ("a", "b", "c")
MACHINES: dict[str, Callable[[int], Machine]] = {
    "namespaces": Namespace,
    "processes": lambda _number: Killed(),
}


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=1.5)
    fleet.env["LEADHAND_INVENTORY_S"] = "2"
    yield fleet
    fleet.close()


@pytest.fixture(params=["processes", pytest.param("namespaces", marks=pytest.mark.slow)])
def machines(request: pytest.FixtureRequest, fleet: Fleet) -> Iterator[dict[str, Machine]]:
    """A worker at each place; that of `c` sees the folders of `b` too."""
    made: dict[str, Machine] = {}
    try:
        for number, place in enumerate(PLACES):
            made[place] = MACHINES[request.param](number)
        for place, machine in made.items():
            (fleet.folder / place).mkdir()
            seen = ("b", "c") if place == "c" else (place,)
            roots = ":".join(str(fleet.folder / root) for root in seen)
            machine.boot(fleet, f"at-{place}", LEADHAND_PLACE=place, LEADHAND_ROOTS=roots)
        yield made
    except Refused as error:
        pytest.skip(f"no {request.param} here: {error}")
    finally:
        for machine in made.values():
            machine.close()


@pytest.fixture
def client(fleet: Fleet) -> FlaskClient:
    app = create_app(Settings(api_token=TOKEN, secret="s"), fleet.engine)
    client = app.test_client()
    client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {TOKEN}"
    return client


def told(client: FlaskClient, path: str) -> dict[str, Any]:
    answer: dict[str, Any] = client.get(path).get_json()
    return answer


def places(client: FlaskClient) -> set[str]:
    return {worker["place"] for worker in told(client, "/v1/workers")["items"]}


def begun(fleet: Fleet, place: str, name: str) -> str:
    """A session in a folder of its own at a place."""
    folder = fleet.folder / place / name
    folder.mkdir()
    doer = fleet.script("says.py", SAYS).replace("says.py", "../../says.py")
    return fleet.loop(doer, "true", cwd=str(folder))


def pid(fleet: Fleet, place: str, name: str) -> int:
    """The process of a doer, once it has one."""
    file = fleet.folder / place / name / "pid"
    wait_until(lambda: file.exists() and file.read_text(), timeout=20)
    return int(file.read_text())


def is_named_as_left(client: FlaskClient, session: str) -> bool:
    note = f"place 'b' has no worker; start one there, or: leadhand rehome {session} PLACE"
    return note in told(client, f"{S}/{session}")["notes"]


def is_moved(client: FlaskClient, session: str) -> bool:
    """Whether it goes on at c; refused for as long as an attempt of its may still live."""
    return client.post(f"{S}/{session}/rehome", json={"place": "c"}).status_code == 202


def ended_by(fleet: Fleet, client: FlaskClient, session: str) -> tuple[set[str], str]:
    """Which workers carried it out, each step once, and in which network it worked."""
    result = fleet.ended(session)
    assert result.verdict == "accept"
    assert set(fleet.outcomes(session).values()) == {1}
    steps = told(client, f"{S}/{session}/steps")["items"]
    return {step["worker"].partition("/")[0] for step in steps}, result.result_text


@pytest.mark.timeout(120)
def test_sessions_stay_where_their_folder_is_until_their_place_is_gone(
    fleet: Fleet, machines: dict[str, Machine], client: FlaskClient
) -> None:
    stay = {place: begun(fleet, place, "stay") for place in ("a", "c")}
    lost = [begun(fleet, "b", name) for name in ("one", "two")]
    dead = [Path("/proc") / str(pid(fleet, "b", name)) for name in ("one", "two")]
    waits = begun(fleet, "b", "three")  # for a slot of that worker
    assert [told(client, f"{S}/{one}")["place"] for one in [*lost, waits]] == ["b"] * 3
    assert all(pid(fleet, place, "stay") for place in stay)
    machines["b"].vanish()
    for one in lost:
        wait_until(partial(is_named_as_left, client, one), timeout=20)
    assert places(client) == {"a", "c"}
    way_out, explain = f"leadhand rehome {lost[1]} c", f"{S}/{lost[1]}/explain"
    wait_until(lambda: way_out in str(told(client, explain)["next"]), timeout=20)
    assert not any(told(client, f"{S}/{one}")["notes"] for one in stay.values())
    refused = client.post(f"{S}/{lost[0]}/rehome", json={"place": "a"}).get_json()
    assert (refused["status"], refused["field"]) == (422, "cwd")
    for one in lost:
        wait_until(partial(is_moved, client, one), timeout=20)
    wait_until(lambda: not any(process.exists() for process in dead), timeout=20)
    wait_until(lambda: told(client, f"{S}/{waits}")["place"] == "c", timeout=60)
    for place in PLACES:
        (fleet.folder / place / "go").touch()
    seen = {place: ended_by(fleet, client, one) for place, one in stay.items()}
    assert [workers for workers, _ in seen.values()] == [{"at-a"}, {"at-c"}]
    assert [ended_by(fleet, client, one) for one in [*lost, waits]] == [seen["c"]] * 3
    own = str(Path("/proc/self/ns/net").readlink())
    kinds = 3 if isinstance(machines["a"], Namespace) else 1
    assert len({own, *(network for _, network in seen.values())}) == kinds
    if machines["b"].comes_back():
        wait_until(lambda: "b" in places(client), timeout=30)
