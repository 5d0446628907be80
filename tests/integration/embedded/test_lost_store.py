"""Redis comes back empty, with another store or with an older state: an alarm until accepted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx2
import psutil
import pytest
import redis

from app.errors import InvalidDocument
from app.fleet.store_guard import StoreGuard
from app.settings import Settings
from app.store.identity import FileMemory, Identity, memory_of
from leadhand.client.client import Client
from leadhand.errors import StoreUnknown
from leadhand.errors import StoreUnknown as StoreRefused
from leadhand.local.redis_server import RedisServer
from leadhand.models.documents import LoopDocument
from tests.acceptance.project import Project
from tests.fleet import Fleet
from tests.integration.api.test_api_process import TOKEN, running
from tests.redis_users import of_broker
from tests.silent_engine import silent_engine
from tests.waiting import wait_until
from workers.host.join_fleet import ServedStore

SECRET = "secret of the test"


class Site:
    """A Redis, an API and a worker, each of which remembers the store in a folder of its own."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder = folder
        self.server = server
        self.broker = of_broker(server.url)
        (folder / "api").mkdir()
        (folder / "work").mkdir()
        self.fleet = Fleet(
            folder / "work",
            server.url,
            self.broker,
            lease_s=2,
            LEADHAND_STATE_DIR=str(folder / "w"),
        )

    def api(self) -> AbstractContextManager[str]:
        state = str(self.folder / "a")
        more = {
            "LEADHAND_BROKER_URL": self.broker,
            "LEADHAND_SECRET": SECRET,
            "LEADHAND_LEASE_S": "2",
        }
        return running(self.folder / "api", self.server.url, LEADHAND_STATE_DIR=state, **more)

    def submit(self, client: Client) -> str:
        """Start a loop that appends a line to the file `ran`."""
        loop = {"kind": "loop", "task": "x", "doer": {"command": "echo ran >> ran; echo done"}}
        return client.submit({**loop, "checkers": ["true"], "cwd": str(self.fleet.folder)}).id

    @property
    def runs(self) -> int:
        path = self.fleet.folder / "ran"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def log(self, name: str) -> str:
        return (self.folder / {"api": "api/log", "one": "work/one.log"}[name]).read_text()

    def alarmed(self, name: str) -> bool:
        """Whether a CRITICAL line of the log describes the problem."""
        lines = self.log(name).splitlines()
        return any("critical" in line.lower() and "nothing is read" in line for line in lines)

    def sweeps_seen(self, folder: str) -> int:
        found = [json.loads(file.read_text()) for file in (self.folder / folder).glob("store-*")]
        return max((int(one["sweeps"]) for one in found), default=0)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with RedisServer(tmp_path / "state" / ".leadhand") as server:
        site = Site(tmp_path, server)
        yield site
        site.fleet.close()


def client_of(url: str) -> Client:
    return Client(url, TOKEN, patience_s=10)


def is_ready(url: str) -> bool:
    return httpx2.get(f"{url}/readyz").status_code == 200


@pytest.mark.slow
def test_emptied_store_under_running_processes_is_refused_until_it_is_accepted(site: Site) -> None:
    with site.api() as url, client_of(url) as client, redis.Redis.from_url(site.server.url) as db:
        worker = site.fleet.worker("one")
        session = site.submit(client)
        assert client.wait(session, 20).status == "completed"
        wait_until(lambda: "store" in str(client.store()) and client.store().remembered)
        db.flushall()

        # Refused at once, not only when the next sweep has noticed.
        refused = httpx2.get(f"{url}/v1/sessions/{session}", headers=bearer())
        assert (refused.status_code, refused.json()["type"]) == (
            503,
            "urn:leadhand:problem:store-unknown",
        )
        with pytest.raises(StoreRefused, match="leadhand store accept --new"):
            site.submit(client)
        ready = httpx2.get(f"{url}/readyz")
        assert (ready.status_code, ready.json()["detail"][:23]) == (503, "Redis has lost its data")
        assert httpx2.get(f"{url}/healthz").status_code == 200
        wait_until(lambda: site.alarmed("one") and site.alarmed("api"))
        assert list(db.scan_iter("lh:*")) == []
        assert client.store().state == "empty"

        with pytest.raises(Exception, match="--new"):
            client.accept_store()
        assert client.accept_store(new=True).state == "known"
        assert is_ready(url)
        again = site.submit(client)
        assert client.wait(again, 20).status == "completed"
        assert worker.poll() is None
        assert site.runs == 2


@pytest.mark.slow
def test_emptied_store_is_noticed_by_processes_that_start_later(site: Site) -> None:
    with site.api() as url:
        assert is_ready(url)
    site.server.stop()
    shutil.rmtree(site.folder / "state" / ".leadhand" / "redis" / "appendonlydir")
    site.server.relaunch()
    with site.api() as url, client_of(url) as client:
        wait_until(lambda: client.store().state == "empty")
        with pytest.raises(StoreRefused):
            site.submit(client)
        assert client.accept_store(new=True).state == "known"


@pytest.mark.slow
def test_replica_that_was_promoted_empty_is_refused(site: Site) -> None:
    with site.api() as url:
        worker = site.fleet.worker("one")
        site.server.kill()
        shutil.rmtree(site.folder / "state" / ".leadhand" / "redis" / "appendonlydir")
        site.server.relaunch()
        wait_until(
            lambda: httpx2.get(f"{url}/readyz").json().get("type", "").endswith("store-unknown")
        )
        wait_until(lambda: site.alarmed("one"))
        assert worker.poll() is None


@pytest.mark.slow
def test_older_backup_runs_no_step_until_it_is_accepted(site: Site) -> None:
    data = site.folder / "state" / ".leadhand" / "redis" / "appendonlydir"
    with site.api() as url, client_of(url) as client:
        session = site.submit(client)
        shutil.copytree(data, site.folder / "backup")
        site.fleet.worker("one")
        assert client.wait(session, 20).status == "completed"
        with redis.Redis.from_url(site.server.url) as db:
            db.hincrby("lh:epoch", "sweeps", 1000)  # as after a quarter of an hour
        wait_until(lambda: min(site.sweeps_seen("a"), site.sweeps_seen("w")) > 1000, timeout=15)

        site.server.kill()
        shutil.rmtree(data)
        shutil.copytree(site.folder / "backup", data)
        site.server.relaunch()
        wait_until(lambda: "older state" in httpx2.get(f"{url}/readyz").text)
        with pytest.raises(StoreRefused, match="older state"):
            client.session(session)
        wait_until(lambda: site.alarmed("one"))
        assert site.runs == 1
        assert client.accept_store().state == "known"
        assert client.wait(session, 30).status == "completed"
        assert site.runs == 2


@pytest.mark.slow
def test_worker_that_starts_at_an_unknown_store_waits_and_takes_over_what_is_accepted(
    site: Site,
) -> None:
    with site.api() as url, client_of(url) as client, redis.Redis.from_url(site.server.url) as db:
        first = site.fleet.worker("one")
        site.fleet.kill(first)
        db.flushall()
        late = site.fleet.begin("one")
        wait_until(lambda: site.alarmed("one"), timeout=20)
        assert late.poll() is None
        probe = [sys.executable, "-P", "-m", "leadhand.serve", "probe"]
        env = {**site.fleet.env, "LEADHAND_WORKER_NAME": "one"}
        assert subprocess.run(probe, env=env, check=False).returncode == 0  # no restart would help
        assert not list(db.scan_iter("lh:*"))
        client.accept_store(new=True)
        assert client.wait(site.submit(client), 30).status == "completed"


@pytest.mark.slow
def test_worker_that_remembers_yet_another_store_follows_replaces(site: Site) -> None:
    with site.api() as url, client_of(url) as client, redis.Redis.from_url(site.server.url) as db:
        first = site.fleet.worker("one")
        site.fleet.kill(first)
        old = client.store().id
        db.set("lh:store", "f" * 32)
        assert client.accept_store(new=True).state == "known"
        db.delete("lh:store-past")  # the worker's id is not among those that were succeeded
        site.fleet.begin("one")
        wait_until(lambda: site.alarmed("one"), timeout=20)
        assert client.store().state == "known"
        assert client.accept_store(replaces=old).state == "known"
        assert client.wait(site.submit(client), 30).status == "completed"


def test_processes_that_start_at_once_agree_on_one_id(store_url: str) -> None:
    guards = [StoreGuard(silent_engine(store_url).store) for _ in range(8)]
    threads = [threading.Thread(target=guard.check) for guard in guards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({guard.check_and_view().id for guard in guards}) == 1
    assert {guard.check_and_view().state for guard in guards} == {"known"}


def test_process_killed_before_it_wrote_its_file_adopts_the_id_of_the_store(
    store_url: str, tmp_path: Path
) -> None:
    named = silent_engine(store_url).store.identity().name()
    guard = StoreGuard(silent_engine(store_url).store)
    guard.remember_in(FileMemory(tmp_path / "file"))
    guard.check()
    assert guard.check_and_view().remembered == named
    assert json.loads((tmp_path / "file").read_text())["store"] == named


def test_unreadable_file_is_an_alarm_until_the_store_is_accepted(
    store_url: str, tmp_path: Path
) -> None:
    named = silent_engine(store_url).store.identity().name()
    (tmp_path / "file").write_text("")  # as after a power loss
    guard = StoreGuard(silent_engine(store_url).store)
    guard.remember_in(FileMemory(tmp_path / "file"))
    with pytest.raises(StoreUnknown, match=r"file.*cannot be read.*leadhand store accept"):
        guard.check()
    assert guard.check_and_view().state == "unreadable"
    assert (tmp_path / "file").read_text() == ""
    accepted = guard.accept()
    assert (accepted.state, accepted.id != named) == ("known", True)
    assert json.loads((tmp_path / "file").read_text())["store"] == accepted.id


def test_worker_with_an_unreadable_file_follows_an_acceptance_by_the_api(
    store_url: str, tmp_path: Path
) -> None:
    api = StoreGuard(silent_engine(store_url).store)
    api.check()
    (tmp_path / "file").write_text("")
    worker = StoreGuard(silent_engine(store_url).store)
    worker.remember_in(FileMemory(tmp_path / "file"))
    for _ in range(2):
        with pytest.raises(StoreUnknown, match="cannot be read"):
            worker.check()
    assert api.accept().state == "known"
    worker.check()
    assert worker.check_and_view().remembered == api.check_and_view().remembered


def test_unreadable_file_and_an_empty_store_need_new(
    store_url: str, tmp_path: Path, redis_client: redis.Redis
) -> None:
    guards = []
    for name in ("api", "worker"):
        (tmp_path / name).write_text("")
        guard = StoreGuard(silent_engine(store_url).store)
        guard.remember_in(FileMemory(tmp_path / name))
        with pytest.raises(StoreUnknown, match="cannot be read"):
            guard.check()
        guards.append(guard)
    assert redis_client.get("lh:store") is None
    with pytest.raises(InvalidDocument, match="--new"):
        guards[0].accept()
    assert guards[0].accept(new=True).state == "known"
    guards[1].check()


def test_request_that_was_let_through_before_the_alarm_creates_nothing_during_it(
    store_url: str, redis_client: redis.Redis
) -> None:
    engine = silent_engine(store_url)
    engine.guard.check()
    engine.store.due(every_ms=0, limit=1, grace_ms=0)  # opens a connection
    engine.guard.require()  # as the request does
    known = engine.guard.expected_identity()
    redis_client.set("lh:store", "e" * 32)
    with pytest.raises(StoreUnknown):
        engine.guard.check()  # as the sweep does
    assert engine.guard.expected_identity() == known
    loop = {"kind": "loop", "task": "x", "doer": {"command": "true"}, "checkers": ["true"]}
    with pytest.raises(StoreUnknown):
        engine.submit.document(LoopDocument.model_validate(loop))
    assert redis_client.zcard("lh:sessions") == 0
    assert engine.store.due(every_ms=0, limit=1, grace_ms=0).word == "other_store"


def test_process_that_starts_during_an_alarm_verifies_its_connections(
    store_url: str, tmp_path: Path
) -> None:
    engine = silent_engine(store_url)
    engine.store.identity().name()
    memory = FileMemory(tmp_path / "file")
    memory.write(Identity("e" * 32, 1))
    engine.guard.remember_in(memory)
    assert engine.guard.expected_identity() is None
    with pytest.raises(StoreUnknown):
        engine.guard.check()
    with pytest.raises(StoreUnknown):
        engine.store.due(every_ms=0, limit=1, grace_ms=0)
    assert engine.guard.accept(new=True).state == "known"
    engine.store.due(every_ms=0, limit=1, grace_ms=0)


def test_pool_process_verifies_new_connections_during_an_alarm() -> None:
    served = ServedStore()
    assert served.expected() is None
    served.update(Identity("e" * 32, 7))
    served.update(None)
    assert served.is_closed()
    assert served.expected() == Identity("e" * 32, 7)


def test_sweep_that_began_before_the_alarm_does_not_end_it(
    store_url: str, redis_client: redis.Redis
) -> None:
    guard, reported = StoreGuard(silent_engine(store_url).store), list[Identity | None]()
    guard.check()
    guard.listeners.append(reported.append)
    redis_client.set("lh:store", "e" * 32)
    with pytest.raises(StoreUnknown):
        guard.check()
    guard.record_sweeps(10_000)
    assert reported == [None]


def test_two_acceptances_at_once_leave_one_store_that_all_follow(
    store_url: str, redis_client: redis.Redis
) -> None:
    guards = [StoreGuard(silent_engine(store_url).store) for _ in range(4)]
    for guard in guards:
        guard.check()
    redis_client.flushall()
    threads = [threading.Thread(target=guard.accept, kwargs={"new": True}) for guard in guards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for guard in guards:
        guard.check()
    assert len({guard.check_and_view().remembered for guard in guards}) == 1


def test_accepting_another_store_needs_new(store_url: str, redis_client: redis.Redis) -> None:
    engine = silent_engine(store_url)
    engine.guard.check()
    redis_client.set("lh:store", "e" * 32)
    with pytest.raises(StoreUnknown, match="another store"):
        engine.guard.check()
    with pytest.raises(InvalidDocument, match="--new"):
        engine.guard.accept()
    assert redis_client.get("lh:store") == "e" * 32
    assert engine.guard.accept(new=True).state == "known"


@pytest.mark.slow
def test_state_folder_that_cannot_be_written_is_refused_in_one_line(
    tmp_path: Path, store_url: str
) -> None:
    (tmp_path / "file").write_text("")
    env = {
        **os.environ,
        "LEADHAND_REDIS_URL": store_url,
        "LEADHAND_SECRET": "s",
        "LEADHAND_STATE_DIR": str(tmp_path / "file" / "state"),
    }
    for module in ("api", "workers"):
        ran = subprocess.run(
            [sys.executable, "-P", "-m", module], cwd=tmp_path, env=env, capture_output=True,
            text=True, timeout=30, check=False,
        )  # fmt: skip
        assert ran.returncode == 1
        assert "LEADHAND_STATE_DIR" in ran.stderr
        assert "Traceback" not in ran.stderr


def test_default_state_folder_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    settings = Settings(redis_url="redis://host/0", state_home=tmp_path / "file")
    assert memory_of(settings).place is None
    assert "LEADHAND_STATE_DIR" in caplog.text


@pytest.mark.slow
@pytest.mark.timeout(120)  # seven commands, each of which starts Python
def test_embedded_store_that_was_deleted_is_reported_by_commands_until_it_is_accepted(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path / "project")
    try:
        spawn = ("spawn", "x", "--doer", "echo done", "--checker", "true")
        assert project.leadhand(*spawn, timeout=60).code == 0
        supervisor = psutil.Process(project.run["pid"])
        supervisor.terminate()
        supervisor.wait(timeout=30)
        shutil.rmtree(project.state / "redis" / "appendonlydir")
        listed = project.leadhand("ls", timeout=60)
        assert listed.code == 1
        assert "leadhand store accept --new" in listed.err
        assert "Traceback" not in listed.err
        checked = project.leadhand("doctor")
        assert (checked.code, "store: Redis has lost its data" in checked.out) == (1, True)
        assert project.leadhand("store", "show").code == 1
        assert project.leadhand("store", "accept").code == 1
        assert project.leadhand("store", "accept", "--new").code == 0
        assert project.leadhand(*spawn, timeout=60).code == 0
    finally:
        project.close()


def bearer() -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}"}
