"""A full disk: waiting commands, explain and doctor report it; with free space, work continues."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from app.core.addresses import SessionRef
from app.fleet.troubles import Troubles, folder_trouble
from leadhand.cli.doctor import _workers
from leadhand.models.documents import LoopDocument
from tests.acceptance.project import Project
from tests.fleet import Fleet
from tests.session_driving import add_worker
from tests.silent_engine import silent_engine
from tests.waiting import wait_until
from workers.attempt.attempt import Attempts
from workers.attempt.heartbeat import Heartbeats
from workers.host.pool import Intake
from workers.processes.process import Command, NoRoom, run
from workers.registry.agents import AgentBook

LOOP = {"task": "t", "doer": {"command": "true"}, "checkers": ["true"], "baseline": False}
#: Runs until the file `go` is there, which is on another file system.
DOER = "touch {go}.begun; while ! test -e {go}; do sleep 0.1; done; echo went"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no program `mount`")
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Write until there is no room."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return path


def test_folder_on_a_full_disk_is_a_trouble_until_there_is_room(small_disk: Path) -> None:
    troubles = Troubles()
    troubles.check_folders([small_disk, small_disk / "not there yet"])
    assert troubles.current() == []
    filler = fill(small_disk)
    troubles.check_folders([small_disk])
    (text,) = troubles.current()
    assert "its disk is full" in text
    filler.unlink()
    troubles.check_folders([small_disk])
    assert troubles.current() == []
    assert list(small_disk.iterdir()) == []


def test_probe_follows_no_link_and_keeps_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    assert folder_trouble(tmp_path) is None
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_probe_of_one_machine_leaves_the_probe_of_another_one_alone(tmp_path: Path) -> None:
    """Containers that share a folder may have equal process and thread numbers."""
    of_another = tmp_path / f".probe-{os.getpid()}-{threading.get_ident()}"
    of_another.write_text("theirs")
    assert folder_trouble(tmp_path) is None
    assert of_another.read_text() == "theirs"


def test_command_that_a_full_disk_leaves_no_room_for_names_the_disk(small_disk: Path) -> None:
    spill = small_disk / "0123abcd" / "do.1"
    spill.mkdir(parents=True)
    fill(small_disk)
    command = Command("true", cwd=Path("/"), env={}, spill=spill, timeout_s=9, prompt="x" * 9999)
    with pytest.raises(NoRoom) as caught:
        run(command, threading.Event())
    expected = f"cannot write to '{spill}': its disk is full; make room there"
    assert str(caught.value) == expected


def test_command_that_needs_more_room_than_there_is_names_the_disk(small_disk: Path) -> None:
    """The disk is not full, so that a retry would end the same way."""
    command = Command(
        "true", cwd=Path("/"), env={}, spill=small_disk / "a" / "b", timeout_s=9,
        prompt="x" * 32_000_000,
    )  # fmt: skip
    why = run(command, threading.Event()).not_started
    assert why is not None
    assert why.startswith(f"cannot write in '{small_disk / 'a' / 'b'}': No space left on device")


def test_full_disk_of_a_worker_is_reported_by_explain_and_to_those_who_wait(
    small_disk: Path, tmp_path: Path, store_url: str, broker_url: str
) -> None:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=2, LEADHAND_PLACE="here")
    try:
        fleet.worker("one", LEADHAND_SPILL=str(small_disk))
        session = fleet.loop(DOER.format(go=tmp_path / "go"), "true")
        wait_until(lambda: (tmp_path / "go.begun").exists())
        fill(small_disk)
        (text,) = wait_until(lambda: fleet.engine.fleet.overview().troubles, timeout=20)
        assert text.startswith(f"worker one: cannot write to '{small_disk}': its disk is full")
        assert fleet.engine.queries.session(session).troubles == [text]
        assert fleet.engine.explainer.explain(session).waits[0].text == text
    finally:
        fleet.close()


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=30, LEADHAND_PLACE="here")
    yield fleet
    fleet.close()


def consumes(fleet: Fleet) -> list[str] | None:
    return fleet.engine.fleet.workers()[0].consumes


def depth(fleet: Fleet) -> int:
    return next(one.depth for one in fleet.engine.fleet.queues() if one.queue == "agents@here")


def sweeps(fleet: Fleet) -> int:
    """Grows by about one per second."""
    found = fleet.engine.store.identity().read()
    return found.sweeps if found else 0


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("since", ["its start", "later"])
def test_worker_with_a_full_spill_folder_takes_no_steps_until_there_is_room(
    small_disk: Path, fleet: Fleet, broker_url: str, since: str
) -> None:
    filler = fill(small_disk) if since == "its start" else None
    fleet.worker("one", LEADHAND_SPILL=str(small_disk))
    if filler is None:
        wait_until(lambda: consumes(fleet), timeout=20)
        filler = fill(small_disk)
    wait_until(lambda: consumes(fleet) == [], timeout=30)

    session = fleet.loop("touch begun", "true")
    (trouble,) = fleet.engine.queries.session(session).troubles
    assert "until then this worker takes no steps" in trouble
    told, waits = (wait.text for wait in fleet.engine.explainer.explain(session).waits)
    assert told == trouble
    assert waits == "no worker consumes agents@here; one does again when its trouble is over"
    (worker,) = fleet.engine.fleet.workers()
    mend = [one.mend for one in _workers([worker]) if "but does not" in one.text]
    assert mend == ["end its trouble (below): then it consumes again"]
    with redis.Redis.from_url(broker_url) as broker:  # a new connection changes nothing
        broker.client_kill_filter(_type="normal", skipme=True)
    later = sweeps(fleet) + 5
    wait_until(lambda: sweeps(fleet) > later, timeout=60)
    assert consumes(fleet) == []
    assert depth(fleet) >= 1  # the message waits for room

    filler.unlink()
    assert fleet.ended(session, timeout=60).status == "completed"
    assert fleet.engine.queries.session(session).counters.attempts_failed == 0
    wait_until(lambda: sorted(consumes(fleet) or ()) == sorted(worker.queues))
    assert fleet.engine.fleet.overview().troubles == []


def test_disk_that_is_full_since_the_last_check_pauses_the_next_claim(small_disk: Path) -> None:
    intake = Intake(small_disk)
    assert not intake.is_paused()
    filler = fill(small_disk)
    assert intake.is_paused()
    filler.unlink()
    assert intake.is_paused()  # until the parent has checked the folder
    intake.update(folder_trouble(small_disk))
    assert not intake.is_paused()


def test_worker_without_room_claims_no_step(small_disk: Path, store_url: str) -> None:
    engine = silent_engine(store_url)
    add_worker(engine, "one")
    session = engine.submit.document(LoopDocument.model_validate(LOOP)).session
    paused = Intake(small_disk).is_paused
    heart, book = Heartbeats(engine), AgentBook.load([])
    attempts = Attempts(engine, worker="one/1", agents=lambda: book, heart=heart, paused=paused)
    fill(small_disk)

    assert attempts(SessionRef(session, session), "loop~1[1]/do") is None
    (step,) = engine.queries.steps(session).items
    assert (step.state, step.attempt) == ("ready", 0)


def test_disk_that_fills_after_the_claim_costs_no_attempt(small_disk: Path, store_url: str) -> None:
    """The body does not start, the step goes back, and goes on once there is room."""
    engine = silent_engine(store_url, spill=str(small_disk), secret="s")
    add_worker(engine, "one", queues=["agents", "checks"], concurrency=1)
    session = engine.submit.document(LoopDocument.model_validate(LOOP)).session
    ref = SessionRef(session, session)
    pauses: list[str] = []
    heart, book = Heartbeats(engine), AgentBook.load([])
    attempts = Attempts(
        engine, worker="one/1", agents=lambda: book, heart=heart,
        on_no_room=lambda: pauses.append("paused"),
    )  # fmt: skip
    filler = fill(small_disk)
    try:
        assert attempts(ref, "loop~1[1]/do") == []
        (step,) = engine.queries.steps(session).items
        assert (step.state, step.attempt, step.failed, step.lost) == ("ready", 0, 0, 0)
        (event,) = [e for e in engine.queries.events(session) if e.type == "step.released"]
        assert str(event.fields["why"]).endswith("its disk is full; make room there")
        assert pauses == ["paused"]
        assert engine.queries.session(session).counters.attempts_failed == 0

        filler.unlink()
        assert attempts(ref, "loop~1[1]/do") is not None
        (do,) = [one for one in engine.queries.steps(session).items if one.node == "loop/do"]
        assert (do.state, do.attempt) == ("succeeded", 1)
    finally:
        attempts.close()


@pytest.mark.slow
def test_full_disk_is_reported_while_a_command_waits_and_work_goes_on_with_room(
    small_disk: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    project = Project(small_disk / "project")
    try:
        doer = DOER.format(go=go)
        waiting = project.begin("spawn", "x", "--doer", doer, "--checker", "true")
        assert waiting.stderr is not None
        wait_until(lambda: project.run, timeout=60)
        wait_until(lambda: [s for s in project.sessions() if s["status"] == "active"], timeout=30)
        session = project.sessions()[0]["id"]
        filler = fill(small_disk)
        said: list[str] = []
        while not any("disk" in line for line in said):
            said.append(waiting.stderr.readline())
            assert said[-1], said
        explained = project.leadhand("explain", session)
        assert "disk" in explained.out
        assert "trouble" in explained.out
        checked = project.leadhand("doctor")
        assert checked.code == 1
        assert "Redis cannot write to its disk: make room" in checked.out, checked
        filler.unlink()
        go.touch()
        assert project.ended(waiting, timeout=90).code == 0
    finally:
        project.close()
