"""A user's program, which is never run: type checkers know the result of each call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, assert_type

from leadhand import AsyncClient, Client, SessionsWanted
from leadhand.models.views.result import ResultView
from leadhand.models.views.session import SessionView
from leadhand.models.views.shared import LockGrant
from leadhand.models.views.step import Event
from leadhand.models.views.view import Page


def blocking(client: Client, grant: LockGrant) -> None:
    assert_type(client.session("0000000a"), SessionView)
    assert_type(client.sessions(status=["failed"], limit=5), Page[SessionView])
    assert_type(client.wait("0000000a", timeout=3), ResultView)
    assert_type(client.release_lock("0000000a", grant), bool)
    assert_type(client.delete("0000000a"), SessionView | None)
    assert_type(client.events("0000000a"), Iterator[Event])
    assert_type(Client.session(client, "0000000a"), SessionView)
    client.session()  # type: ignore[call-arg]
    client.session("0000000a", 3)  # type: ignore[call-arg]
    client.wait("0000000a", timeout="3")  # type: ignore[arg-type]
    client.bulk("sleep", SessionsWanted())  # type: ignore[arg-type]


async def in_event_loop(client: AsyncClient, grant: LockGrant) -> None:
    asked = client.session("0000000a")
    _ = assert_type(asked, Coroutine[Any, Any, SessionView])
    assert_type(await asked, SessionView)
    assert_type(await client.wait("0000000a", timeout=3), ResultView)
    assert_type(await client.release_lock("0000000a", grant), bool)
    assert_type(client.events("0000000a"), AsyncIterator[Event])
    assert_type(await asyncio.create_task(client.wait("0000000a")), ResultView)
    client.session("0000000a")  # type: ignore[unused-coroutine]
    await client.session()  # type: ignore[call-arg]
