"""The asynchronous transport: sends requests to the API, and retries if that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from leadhand.client.backoff import Patience
from leadhand.client.calls import (
    TRANSIENT,
    UNLIMITED,
    Answer,
    Call,
    Outage,
    Reach,
    Silence,
    away,
    build_request,
    checked,
    is_transient,
    refusal,
    retry_after,
)
from leadhand.errors import ApiAway


class AsyncTransport:
    """The connections to one API."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._silence = Silence(reach)
        self._http = httpx2.AsyncClient(
            base_url=reach.url,
            headers=reach.headers,
            timeout=reach.timeout_s,
            limits=UNLIMITED,
            trust_env=reach.trusts_env,
            verify=reach.tls,
        )

    async def send(self, call: Call) -> Answer:
        """Send a call, with retries; return its response, even an error. Raises ApiAway."""
        with self._silence.watched(call):
            return await self._send(call)

    async def _send(self, call: Call) -> Answer:
        patience = Patience(self.reach.patience_s)
        outage = Outage(self.reach)
        while True:
            result = await self._attempt(call)
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
            await asyncio.sleep(pause_s)

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

    async def _attempt(self, call: Call) -> httpx2.Response | ApiAway:
        """Try once; return an error that may be retried, raise one that may not."""
        try:
            return await self._http.send(build_request(self._http, call))
        except TRANSIENT as error:
            return away(self.reach, error)
        except httpx2.TransportError as error:
            raise away(self.reach, error) from error
