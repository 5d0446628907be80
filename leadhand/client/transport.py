"""Sends calls over HTTP, with retries where that is safe: blocking, or in an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2

from leadhand.client.calls import (
    TRANSIENT,
    UNLIMITED,
    Answer,
    Call,
    Outage,
    Patience,
    Reach,
    Silence,
    away,
    build_request,
    checked,
    is_transient,
    refusal,
    retry_after,
)
from leadhand.client.driving import Pause, drive, drive_async
from leadhand.errors import ApiAway


def tries(
    reach: Reach, silence: Silence, call: Call
) -> Generator[Call | Pause, httpx2.Response, Answer]:
    """Yields a call until it is answered, even by an error, and the pauses between. Raises ApiAway.

    A step returns its response, or raises what httpx2 raises.
    """
    patience, outage = Patience(reach.patience_s), Outage(reach)
    with silence.watched(call):
        while True:
            result = yield from _one_try(reach, call)
            if isinstance(result, ApiAway):
                outage.add_failure(result)
                pause_s = patience.next_pause_s()
                if pause_s is None:
                    raise result
            elif not is_transient(result):
                return Answer(result, repeated=patience.tried)
            else:
                outage.add_failure(refusal(result))
                pause_s = patience.next_pause_s(retry_after(result))
                if pause_s is None:
                    return Answer(result, repeated=patience.tried)
            yield Pause(pause_s)


def _one_try(
    reach: Reach, call: Call
) -> Generator[Call, httpx2.Response, httpx2.Response | ApiAway]:
    """Try once; return an error that may be retried, raise one that may not."""
    try:
        return (yield call)
    except TRANSIENT as error:
        return away(reach, error)
    except httpx2.TransportError as error:
        raise away(reach, error) from error


def _options(reach: Reach) -> dict[str, Any]:
    """The arguments of both kinds of httpx2's client."""
    return {
        "base_url": reach.url,
        "headers": reach.headers,
        "timeout": reach.timeout_s,
        "limits": UNLIMITED,
        "trust_env": reach.trusts_env,
        "verify": reach.tls,
    }


class Transport:
    """The connections to one API. Threads may share them."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._silence = Silence(reach)
        self._http = httpx2.Client(**_options(reach))

    def send(self, call: Call) -> Answer:
        """Send a call, with retries; return its response, even an error. Raises ApiAway."""
        return drive(tries(self.reach, self._silence, call), self._try)

    def _try(self, call: Call) -> httpx2.Response:
        return self._http.send(build_request(self._http, call))

    @contextmanager
    def stream(self, call: Call) -> Iterator[httpx2.Response]:
        """Send a call and yield its open streamed response. Raises ApiAway, Refused; no retries."""
        try:
            request = build_request(self._http, call, timeout=self.reach.stream_timeout)
            response = self._http.send(request, stream=True)
            try:
                if response.is_error:
                    response.read()
                yield checked(response)
            finally:
                response.close()
        except httpx2.TransportError as error:
            raise away(self.reach, error) from error

    def close(self) -> None:
        """Close the HTTP connections."""
        self._http.close()


class AsyncTransport:
    """The connections to one API, in one event loop."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._silence = Silence(reach)
        self._http = httpx2.AsyncClient(**_options(reach))

    async def send(self, call: Call) -> Answer:
        """Send a call, with retries; return its response, even an error. Raises ApiAway."""
        return await drive_async(tries(self.reach, self._silence, call), self._try)

    async def _try(self, call: Call) -> httpx2.Response:
        return await self._http.send(build_request(self._http, call))

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[httpx2.Response]:
        """Send a call and yield its open streamed response. Raises ApiAway, Refused; no retries."""
        try:
            request = build_request(self._http, call, timeout=self.reach.stream_timeout)
            response = await self._http.send(request, stream=True)
            try:
                if response.is_error:
                    await response.aread()
                yield checked(response)
            finally:
                await response.aclose()
        except httpx2.TransportError as error:
            raise away(self.reach, error) from error

    async def close(self) -> None:
        """Close the HTTP connections."""
        await self._http.aclose()
