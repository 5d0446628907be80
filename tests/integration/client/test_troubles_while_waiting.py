"""Clients that wait for a session say what keeps it waiting, once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from leadhand.cli import wait_aloud
from leadhand.client.async_client import AsyncClient
from leadhand.client.client import Client
from leadhand.client.troubles import watch
from leadhand.client.troubles.watch import reporting_troubles
from tests.http_world import LOOP, TOKEN, Served, served
from tests.session_driving import add_worker, end
from tests.waiting import wait_until

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
    monkeypatch.setattr(watch, "EVERY_S", 0.05)
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


def test_command_that_applies_work_says_what_it_waits_for(
    api: Served,
    session: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(wait_aloud, "_LOOK_S", 0.2)
    with Client(api.url, TOKEN) as client, ThreadPoolExecutor() as pool:
        waits = pool.submit(wait_aloud.wait_aloud, client, session)
        said = ""

        def says() -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return f"leadhand: session {session} waits: " in said

        wait_until(says)
        end(api.engine, session)
        assert waits.result(timeout=20).verdict == "accept"
    assert FULL in said
