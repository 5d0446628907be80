"""Two hundred event streams at once over a real Redis: none misses an event or hears one twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from leadhand.client.client import AsyncClient, Client
from leadhand.errors import Unavailable
from tests.integration.api.test_api_process import LOOP, TOKEN, running

SESSIONS = 20
WATCHERS = 10
EVENTS = 40


class Watcher:
    """One stream, and its events."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.ids: list[str] = []
        self.has_begun = asyncio.Event()

    async def watch(self, client: AsyncClient) -> None:
        async for event in client.events(self.session):
            self.ids.append(event.id)
            self.has_begun.set()


def emit(redis: Any, session: str, n: int) -> None:
    """Write an event as the scripts do."""
    fields = {"t": "step.settled", "at": n, "a": "loop~1[1]/do", "d": json.dumps({"n": n})}
    redis.xadd(f"lh:{{{session}}}:{session}:events", fields)


def whole_record(client: Client, session: str) -> list[str]:
    page = client.event_page(session, limit=500)
    return [event.id for event in page.items]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_two_hundred_streams_at_once_and_none_misses_an_event(
    tmp_path: Path, store_url, broker_url, redis_client
):
    streams = SESSIONS * WATCHERS
    with running(
        tmp_path, store_url, LEADHAND_BROKER_URL=broker_url, LEADHAND_API_THREADS=str(streams + 16)
    ) as url, Client(url, TOKEN) as client:  # fmt: skip
        sessions = [client.submit(LOOP).id for _ in range(SESSIONS)]
        watchers = [Watcher(session) for session in sessions for _ in range(WATCHERS)]

        async def story() -> None:
            async with AsyncClient(url, TOKEN) as many:
                tasks = [asyncio.create_task(one.watch(many)) for one in watchers]
                await asyncio.gather(*(one.has_begun.wait() for one in watchers))
                await one_more_is_sent_away(url, sessions[0])
                for n in range(EVENTS):
                    for session in sessions:
                        emit(redis_client, session, n)
                    await many.ping()
                for session in sessions:
                    await many.abort(session)
                await asyncio.gather(*tasks)

        asyncio.run(asyncio.wait_for(story(), timeout=100))
        records = {session: whole_record(client, session) for session in sessions}
    assert len({id(one) for one in watchers}) == 200
    assert all(len(record) > EVENTS for record in records.values())
    assert [one.ids == records[one.session] for one in watchers] == [True] * streams


async def one_more_is_sent_away(url: str, session: str) -> None:
    """With all streams taken, another one is refused, and plain requests are still served."""
    async with AsyncClient(url, TOKEN, patience_s=0) as late:
        with pytest.raises(Unavailable) as caught:
            await anext(aiter(late.events(session)))
        assert caught.value.problem.type.endswith("too-many-streams")
        assert (await late.session(session)).id == session
