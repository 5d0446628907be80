"""The client for asyncio against a real API, over wires and stores that fail."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from leadhand import SessionsWanted
from leadhand.client.client import AsyncClient, Client
from leadhand.errors import (
    ApiAway,
    ControlRefused,
    SessionChanged,
    SessionStillRuns,
    SessionUnknown,
    TokenRefused,
    Unavailable,
    WaitTimedOut,
)
from leadhand.models.documents import LoopDocument
from tests.http_world import LOOP, TOKEN, Served, breaking_wire, served
from tests.session_driving import (
    add_events,
    add_worker,
    all_events,
    claim,
    end,
    run_iteration,
    settle,
)


@pytest.fixture(scope="module")
def api(module_store_url) -> Iterator[Served]:
    with served(module_store_url) as running:
        yield running


def within(api: Served, story: Callable[[AsyncClient], Awaitable[None]], **more: Any) -> None:
    """Run a story with a client of its own."""

    async def told() -> None:
        async with AsyncClient(**{"url": api.url, "token": TOKEN, **more}) as client:
            await story(client)

    asyncio.run(asyncio.wait_for(told(), timeout=25))


def test_both_clients_can_be_asked_the_same():
    def asked(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_") and name != "close"
        }

    assert asked(AsyncClient) == asked(Client)
    assert len(asked(Client)) > 25


def test_a_session_from_its_submit_to_its_end(api):
    async def story(client: AsyncClient) -> None:
        session = (await client.submit(LoopDocument.model_validate(LOOP))).id
        assert (await client.session(session)).status == "active"
        with pytest.raises(SessionStillRuns):
            await client.result(session)
        waits = asyncio.create_task(client.wait(session))
        await asyncio.to_thread(run_iteration, api.engine, session, "retry")
        await asyncio.to_thread(end, api.engine, session)
        assert (await waits).verdict == "accept"
        steps = (await client.steps(session)).items
        assert [step.state for step in steps] == ["succeeded"] * 6
        assert [e.type async for e in client.events(session)][-1] == "session.ended"
        page = await client.event_page(session, limit=500)
        assert [e.id for e in page.items] == [e.id for e in all_events(api.engine, session)]
        exported = await client.export(session)
        assert (exported.session.id, exported.ledger[0].verdict) == (session, "retry")
        assert '"retry"' in await client.export_text(session, "ledger")
        assert await client.delete(session) is None
        with pytest.raises(SessionUnknown):
            await client.session(session)

    within(api, story)


def test_sessions_are_steered_one_by_one_and_together(api):
    async def at_work(client: AsyncClient) -> str:
        """A session one of whose steps runs."""
        session = (await client.submit(LOOP)).id
        await asyncio.to_thread(claim, api.engine, session)
        return session

    async def story(client: AsyncClient) -> None:
        session = (await client.submit({**LOOP, "label": "nightly"})).id
        running = await asyncio.to_thread(claim, api.engine, session)
        before = await client.session(session)
        assert (await client.stop(session, seen=before)).status == "stopping"
        with pytest.raises(SessionChanged):
            await client.abort(session, seen=before)
        with pytest.raises(ControlRefused):
            await client.stop(session)
        await asyncio.to_thread(settle, api.engine, session, running)
        assert (await client.session(session)).status == "stopped"
        assert (await client.resume(session, max_iterations=5)).status == "active"
        wanted = SessionsWanted(status=["active"], kind="loop")
        preview = await client.bulk("abort", wanted)
        assert preview.dry_run
        assert session in preview.first
        assert (await client.bulk("abort", wanted, dry_run=False)).done == preview.matched
        assert (await client.exit(await at_work(client), "spec")).status == "exiting"
        assert (await client.sessions(status="active")).items == []
        view = await client.delete(await at_work(client), force=True)
        assert view is not None
        assert view.status == "aborting"

    within(api, story)


def test_tokens_and_workers_can_be_asked_for(api):
    add_worker(api.engine, "w1")

    async def story(client: AsyncClient) -> None:
        made = await client.create_token("reader", ["read"])
        assert [token.id for token in await client.tokens()] == [made.id]
        await client.revoke_token(made.id)
        assert await client.tokens() == []
        assert [worker.name for worker in await client.workers()] == ["w1"]
        await client.ping()

    within(api, story)


def test_a_wrong_token_is_refused_at_once(api):
    async def story(client: AsyncClient) -> None:
        with pytest.raises(TokenRefused):
            await client.sessions()

    within(api, story, token="wrong")


def test_a_wait_that_takes_too_long_says_so(api):
    async def story(client: AsyncClient) -> None:
        with pytest.raises(WaitTimedOut):
            await client.wait((await client.submit(LOOP)).id, timeout=0.2)

    within(api, story)


def test_a_store_that_comes_back_is_waited_for_and_one_that_does_not_is_told_of(api):
    async def story(client: AsyncClient) -> None:
        with pytest.raises(Unavailable):
            await client.ping()
        api.wire.heal()
        await client.ping()

    async def patient(client: AsyncClient) -> None:
        back = threading.Timer(0.5, api.wire.heal)
        back.start()
        assert (await client.submit(LOOP)).status == "active"
        back.join()

    api.wire.cut()
    within(api, story, patience_s=0.3)
    api.wire.cut()
    within(api, patient)


def test_an_api_that_is_not_there_is_told_of(api):
    async def story(client: AsyncClient) -> None:
        with pytest.raises(ApiAway):
            await client.sessions()

    within(api, story, url="http://127.0.0.1:9", patience_s=0.3)


def test_a_submit_whose_answer_was_lost_makes_one_session(api):
    with Client(api.url, TOKEN) as other, breaking_wire(api.port) as wire:
        before = len(other.sessions(limit=500).items)

        async def story(client: AsyncClient) -> None:
            wire.break_after = 5
            healed = threading.Timer(0.25, setattr, args=[wire, "break_after", None])
            healed.start()
            session = (await client.submit(LOOP)).id
            await asyncio.to_thread(claim, api.engine, session)
            assert (await client.stop(session)).status == "stopping"
            healed.join()

        within(api, story, url=wire.url)
        assert len(other.sessions(limit=500).items) == before + 1


def test_a_stream_that_breaks_off_again_and_again_has_neither_gap_nor_double(api):
    session = api.submit()
    seen: list[tuple[str, str]] = []

    async def story(client: AsyncClient) -> None:
        async def follow() -> None:
            seen.extend([(e.id, e.type) async for e in client.events(session)])

        follows = asyncio.create_task(follow())
        for _ in range(5):
            await asyncio.to_thread(add_events, api.engine, session, 20)
        await asyncio.to_thread(end, api.engine, session)
        await follows

    with breaking_wire(api.port) as wire:
        wire.break_after = 3000
        within(api, story, url=wire.url, patience_s=20)
        assert wire.connections > 3
    assert seen == [(e.id, e.type) for e in all_events(api.engine, session)]
    assert len(seen) > 100
