"""Clients that wait for a session say what keeps it waiting, once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from app.core.program import SCHEMA_VERSION
from leadhand.client.client import AsyncClient, Client
from leadhand.client.waiting import IN_EVENTS, TroubleReport, reporting_troubles
from leadhand.models.views.explain import ExplainView, Wait
from leadhand.run import wait_for_session
from tests.http_world import LOOP, TOKEN, Served, served
from tests.session_driving import add_worker, claim, end, expire_worker, settle

FULL = "cannot write to '/spill': its disk is full; make room there"
SAID = [f"worker full: {FULL}"]


@pytest.fixture(scope="module")
def api(module_store_url: str) -> Iterator[Served]:
    with served(module_store_url) as running:
        yield running


@pytest.fixture
def session(api: Served) -> str:
    add_worker(api.engine, "full", troubles=[FULL])
    with Client(api.url, TOKEN) as client:
        session = client.submit({**LOOP, "place": "local"}).id
    assert api.engine.queries.session(session).troubles == SAID
    return session


class Said(list[str]):
    """The messages of a client; sets an event at the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.something = threading.Event()

    def __call__(self, text: str) -> None:
        self.append(text)
        self.something.set()


def test_wait_says_a_trouble_once(api: Served, session: str) -> None:
    said = Said()
    with Client(api.url, TOKEN, say=said) as client, ThreadPoolExecutor() as pool:
        waits = pool.submit(client.wait, session, 20)
        assert said.something.wait(10)
        end(api.engine, session)
        assert waits.result(timeout=20).verdict == "accept"
    assert said == SAID


def test_asynchronous_wait_says_a_trouble_once(api: Served, session: str) -> None:
    said = Said()

    async def story() -> None:
        async with AsyncClient(api.url, TOKEN, say=said) as client:
            waits = asyncio.create_task(client.wait(session, 20))
            assert await asyncio.to_thread(said.something.wait, 10)
            await asyncio.to_thread(end, api.engine, session)
            assert (await waits).verdict == "accept"

    asyncio.run(story())
    assert said == SAID


def test_command_that_waits_says_a_trouble_once(
    api: Served, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadhand.client.waiting.EVERY_S", 0.05)
    said = Said()
    with (
        Client(api.url, TOKEN, say=said) as client,
        ThreadPoolExecutor() as pool,
        reporting_troubles(client, [session], said),
    ):
        waits = pool.submit(client.wait, session, 20)
        assert said.something.wait(10)
        end(api.engine, session)
        assert waits.result(timeout=20).verdict == "accept"
    assert said == SAID


@pytest.fixture
def waiting(api: Served) -> str:
    """A session whose program no worker knows."""
    expire_worker(api.engine, "full")
    add_worker(api.engine, "old", schema_version=SCHEMA_VERSION - 1)
    with Client(api.url, TOKEN) as client:
        return client.submit({**LOOP, "place": "local"}).id


def test_wait_says_once_for_what_it_waits(api: Served, waiting: str) -> None:
    said = Said()
    with Client(api.url, TOKEN, say=said) as client, ThreadPoolExecutor() as pool:
        client.troubles.patience_s = 0
        waits = pool.submit(client.wait, waiting, 20)
        assert said.something.wait(10)
        end(api.engine, waiting)
        assert waits.result(timeout=20).verdict == "accept"
    assert len(said) == len(set(said)) == 2
    assert said[0].startswith(f"waiting for session {waiting}: its program needs workers")


def test_command_that_shows_events_says_only_what_these_do_not_have(
    api: Served, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadhand.client.waiting.EVERY_S", 0.05)
    said = Said()
    with Client(api.url, TOKEN, say=said) as client:
        client.troubles.patience_s = 0
        with reporting_troubles(client, [waiting], said, shown=IN_EVENTS):
            assert said.something.wait(10)
            running = ExplainView(session=waiting, status="active", text="", waits=[RUNS])
            client.troubles.note_waits(running)
        assert said[0].startswith(f"waiting for session {waiting}: its program needs workers")
        assert not any("is running" in text for text in said)
        client.troubles.note_waits(running)
    assert said[-1] == f"waiting for session {waiting}: do: attempt 1 is running"
    end(api.engine, waiting)


def test_command_that_shows_no_events_says_which_step_runs(
    api: Served, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadhand.client.waiting.EVERY_S", 0.05)
    expire_worker(api.engine, "full")
    said = Said()
    grant = claim(api.engine, session)
    with Client(api.url, TOKEN, say=said) as client, ThreadPoolExecutor() as pool:
        client.troubles.patience_s = 0
        waits = pool.submit(wait_for_session, client, client.session(session), say=said)
        assert said.something.wait(10)
        settle(api.engine, session, grant)
        settle(api.engine, session, claim(api.engine, session))
        assert waits.result(timeout=20).verdict == "accept"
    assert any("attempt 1" in text for text in said), said


@pytest.mark.parametrize(
    ("name", "change_s", "due_s"),
    [
        ("claimed while another one has its folder, just after a first answer", 2.1, 4),
        ("claimed later", 20.5, 22),
        ("no change of the session, as when its worker ends", None, 7),
    ],
)
def test_what_begins_to_keep_a_session_waiting_is_asked_for_within_five_seconds(
    api: Served, waiting: str, name: str, change_s: float | None, due_s: int
) -> None:
    now = [0.0]
    report = TroubleReport(print, clock=lambda: now[0])
    view = api.engine.queries.session(waiting)
    asked = []
    for now[0] in range(30):  # as often as `wait` looks
        changed = change_s is not None and now[0] > change_s
        shown = view.model_copy(update={"updated_at": "later"}) if changed else view
        if report.is_due(shown, now[0]):
            asked.append(now[0])
    assert asked[0] == 2, name
    begins_s = change_s or 2.1
    assert min(at for at in asked if at > begins_s) <= due_s, (name, asked)
    assert all(after - at <= 4 for at, after in pairwise(asked)), (name, asked)
    end(api.engine, waiting)


RUNS = Wait(address="loop~1[1]/do", label="do", why="running", text="attempt 1 is running")


def test_one_that_waits_for_a_lock_is_shown_who_holds_it(api: Served, waiting: str) -> None:
    said = Said()
    with (
        Client(api.url, TOKEN) as first,
        Client(api.url, TOKEN, say=said) as second,
        ThreadPoolExecutor() as pool,
    ):
        second.troubles.patience_s = 0
        held = first.acquire_lock(waiting, "schema")
        waits = pool.submit(second.acquire_lock, waiting, "schema", wait_s=20)
        assert said.something.wait(10)
        first.release_lock(waiting, held)
        assert waits.result(timeout=20).state == "held"
    assert said == [f"waiting for lock 'schema', held by session {waiting}"]
    end(api.engine, waiting)
