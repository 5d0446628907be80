"""Several workers: limits that agents themselves count, and where sessions may work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app import shared
from app.errors import InvalidDocument
from leadhand.models.documents import Doer, LoopDocument
from tests.fleet import Fleet

#: Counts how many of its kind run side by side, and keeps the most that it saw. Told of a number,
#: the first of them wait until so many were there at once: short ones may miss one another.
COUNTS = """
import fcntl, json, pathlib, sys, time
room = pathlib.Path(sys.argv[1])
def change(by):
    with (room / "count").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        now, most, runs = json.loads(file.read() or "[0, 0, 0]")
        now += by
        file.truncate(0)
        file.write(json.dumps([now, max(now, most), runs + (by > 0)]))
change(1)
until = time.monotonic() + 20
while len(sys.argv) > 2 and time.monotonic() < until:
    if json.loads((room / "count").read_text() or "[0, 0, 0]")[1] >= int(sys.argv[2]):
        break
    time.sleep(0.01)
time.sleep(0.05)
change(-1)
"""


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=1.5)
    yield fleet
    fleet.close()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_at_most_two_of_an_agent_run_over_four_workers(fleet: Fleet) -> None:
    counts = fleet.script("counts.py", COUNTS)
    command = [*counts.split(), str(fleet.folder), "2"]
    command[1] = str(fleet.folder / command[1])
    agents = fleet.folder / "agents.toml"
    agents.write_text(f"[agents.x]\ncommand = {command!r}\n".replace("'", '"'))
    for name in ("one", "two", "three", "four"):
        fleet.worker(name, LEADHAND_CONCURRENCY="1", LEADHAND_AGENTS=str(agents))
    shared.set_limit(fleet.engine, "agent:x", concurrency=2)
    sessions = []
    for number in range(40):
        folder = fleet.folder / str(number)
        folder.mkdir()
        sessions.append(fleet.submitted("true", cwd=str(folder), doer=Doer(agent="x")))
    assert {fleet.ended(session, timeout=90).verdict for session in sessions} == {"accept"}
    assert (fleet.folder / "count").read_text() == "[0, 2, 40]"


def test_two_sessions_in_one_folder_take_turns(fleet: Fleet) -> None:
    counts = fleet.script("counts.py", COUNTS)
    fleet.worker("one", LEADHAND_CONCURRENCY="4")
    sessions = [fleet.loop(f"{counts} .", "true") for _ in range(3)]
    assert {fleet.ended(session).verdict for session in sessions} == {"accept"}
    assert (fleet.folder / "count").read_text() == "[0, 1, 3]"


@pytest.mark.slow
def test_two_names_of_a_folder_far_away_are_one_folder(fleet: Fleet) -> None:
    """The API is not at that place: only the worker can tell."""
    counts = fleet.script("counts.py", COUNTS)
    folder, link = fleet.folder / "work", fleet.folder / "link"
    folder.mkdir()
    link.symlink_to(folder)
    doer = counts.replace("counts.py", "../counts.py") + " ."
    fleet.worker("one", LEADHAND_CONCURRENCY="4", LEADHAND_PLACE="far")
    names = [str(folder), str(link), str(fleet.folder / "." / "link" / "..") + "/work", str(link)]
    sessions = [fleet.loop(doer, "true", cwd=name, place="far") for name in names]
    assert {fleet.ended(session).verdict for session in sessions} == {"accept"}
    assert (folder / "count").read_text() == "[0, 1, 4]"
    views = [fleet.engine.queries.session(session) for session in sessions]
    assert {(v.counters.attempts_lost, v.counters.attempts_failed) for v in views} == {(0, 0)}


def test_a_folder_beneath_no_root_is_refused_by_the_worker_too(fleet: Fleet) -> None:
    root = fleet.folder / "root"
    root.mkdir()
    (fleet.folder / "elsewhere").mkdir()
    (root / "out").symlink_to(fleet.folder)
    fleet.worker("one", LEADHAND_ROOTS=str(root))
    with pytest.raises(InvalidDocument, match="must lie beneath"):
        fleet.loop("true", "true", cwd=str(root / ".." / "elsewhere"))
    result = fleet.ended(fleet.loop("true", "true", cwd=str(root / "out")))
    assert result.status == "failed"
    assert result.reason is not None
    assert "is not beneath a root" in result.reason.root.text


def test_the_same_key_is_the_same_session_whatever_can_be_submitted_now(fleet: Fleet) -> None:
    folder = fleet.folder / "work"
    folder.mkdir()
    given = {"task": "t", "checkers": ["true"], "doer": {"command": "true"}, "cwd": str(folder)}
    document = LoopDocument.model_validate(given)
    first = fleet.engine.submit.document(document, idempotency_key="k")
    folder.rmdir()
    again = fleet.engine.submit.document(document, idempotency_key="k")
    assert (again.session, again.created) == (first.session, False)


def test_a_place_that_nobody_is_at_is_refused(fleet: Fleet) -> None:
    fleet.worker("one")
    document = LoopDocument.model_validate({"task": "t", "checker": "true", "place": "mars"})
    with pytest.raises(InvalidDocument, match="workers are at local"):
        fleet.engine.submit.document(document)
