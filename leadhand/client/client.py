"""The clients of Leadhand's API: the same operations, blocking and in an event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from leadhand.client.events import Trail, follow, follow_async
from leadhand.client.transport import AsyncTransport, Transport, drive, drive_async
from leadhand.client.waiting import TroubleReport, Waits
from leadhand.contract.calls import Blocking, InEventLoop, Noun, Reach, Script
from leadhand.contract.flows import Flows
from leadhand.contract.folders import Folders
from leadhand.contract.guards import Guards
from leadhand.contract.here import Here
from leadhand.contract.messages import Messages
from leadhand.contract.plans import Plans
from leadhand.contract.stacks import Stacks
from leadhand.contract.tokens import Tokens
from leadhand.contract.work import Artifacts, LocalWork
from leadhand.models.views.step import Event
from leadhand.settings import ClientSettings, current_folder, current_umask, environment

T = TypeVar("T")


class _Options(NamedTuple):
    """The arguments of a client."""

    url: str | None
    token: str | None
    timeout_s: float
    patience_s: float
    say: Callable[[str], None] | None
    here: Here | None


class _Nouns(Waits, Plans, Flows, Folders, Messages, Stacks, Guards, Artifacts, LocalWork, Tokens):
    """All operations."""

    def __init__(self, reach: Reach, troubles: TroubleReport) -> None:
        self._reach, self.troubles = reach, troubles


class _Client(_Nouns):
    """What both clients are made of."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        patience_s: float = 30.0,
        say: Callable[[str], None] | None = None,
        here: Here | None = None,
    ) -> None:
        self._options = _Options(url, token, timeout_s, patience_s, say, here)
        self.troubles = TroubleReport(say)
        #: What is open beside the connections: embedded services.
        self._held = ExitStack()

    def _find_api(self) -> None:
        """Find the API; start embedded services if no URL is configured, which can take seconds."""
        self._reach = _find_api(self._options, self._held)
        self._nouns: Noun = _Nouns(self._reach, self.troubles)


class Client(_Client, Blocking):
    """A client of one API: that of `url`, of LEADHAND_URL, or the user's embedded stack.

    If the connection breaks or Redis is unreachable, a call is retried for `patience_s` and
    executed once; `say` is called with a message then. `here` is the environment of the caller,
    by default that of this process.

    It is open from the start until `close` or the end of a `with`, and threads may share it.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        patience_s: float = 30.0,
        say: Callable[[str], None] | None = None,
        here: Here | None = None,
    ) -> None:
        super().__init__(url, token, timeout_s=timeout_s, patience_s=patience_s, say=say, here=here)
        self._find_api()
        self._transport = Transport(self._reach)

    def events(
        self, session: str, after: str | None = None, *, output: bool = False
    ) -> Iterator[Event]:
        """Stream a session's events after a position, the stored ones first, until it has ended.

        With `output`, also stream the redacted output of running bodies: events of type `output`,
        whose fields have `fence` (the attempt), `seq`, `stream` (stdout, stderr or agent), `text`,
        `dropped` (bytes left out before it) and `missing` (parts that are deleted).
        """
        return follow(self._transport, Trail(self._reach, session, after, output=output))

    def _run(self, script: Script[T]) -> T:
        return drive(script, self._transport.send)

    def close(self) -> None:
        """Close the connections. An embedded stack stops once no other client needs it."""
        with self._held:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient(_Client, InEventLoop):
    """A client of one API: that of `url`, of LEADHAND_URL, or the user's embedded stack.

    If the connection breaks or Redis is unreachable, a call is retried for `patience_s` and
    executed once; `say` is called with a message then. `here` is the environment of the caller,
    by default that of this process.

    It is open within `async with`, and belongs to one event loop.
    """

    def events(
        self, session: str, after: str | None = None, *, output: bool = False
    ) -> AsyncIterator[Event]:
        """Stream a session's events after a position, the stored ones first, until it has ended.

        With `output`, also stream the redacted output of running bodies: events of type `output`,
        whose fields have `fence` (the attempt), `seq`, `stream` (stdout, stderr or agent), `text`,
        `dropped` (bytes left out before it) and `missing` (parts that are deleted).
        """
        return follow_async(self._transport, Trail(self._reach, session, after, output=output))

    async def _run(self, script: Script[T]) -> T:
        return await drive_async(script, self._transport.send)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._find_api)
        self._transport = AsyncTransport(self._reach)
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            await self._transport.close()
        finally:
            await asyncio.to_thread(self._held.close)


def _find_api(options: _Options, held: ExitStack) -> Reach:
    """The URL and token of the API; an embedded stack runs for as long as `held` is open."""
    settings = ClientSettings.from_env()
    url = options.url or settings.url
    if url is not None:
        return _reach(options, url, options.token or settings.token or "", Here(environment()))
    from leadhand.local.connect import ensure

    connection = held.enter_context(ensure())
    # Services on another Redis may have workers elsewhere.
    is_own = settings.redis_url is None
    python = sys.executable if is_own else None
    here = Here(
        environment(), is_embedded=is_own, python=python, folder=current_folder(),
        umask=current_umask(),
    )  # fmt: skip
    return _reach(options, connection.url, options.token or connection.token, here)


def _reach(options: _Options, url: str, token: str, here: Here) -> Reach:
    here = options.here or here
    return Reach(url, token, options.timeout_s, options.patience_s, options.say, here)


@contextmanager
def borrowed(client: Client | None) -> Iterator[Client]:
    """Yields the caller's client, or a new one that is closed at the end of the block."""
    if client is not None:
        yield client
        return
    with Client(say=_to_stderr) as own:
        yield own


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"leadhand: {text}\n")
