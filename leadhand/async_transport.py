"""The transport for those who wait without a thread: the same calls, tried again the same way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from leadhand.errors import ApiAway
from leadhand.patience import Patience
from leadhand.transport import (
    PASSING,
    UNLIMITED,
    Answer,
    Call,
    Outage,
    Reach,
    away,
    built,
    checked,
    is_passing,
    refusal,
    retry_after,
)


class AsyncTransport:
    """One API's connections, in one event loop."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._http = httpx2.AsyncClient(
            base_url=reach.url,
            headers=reach.headers,
            timeout=reach.timeout_s,
            limits=UNLIMITED,
            trust_env=reach.trusts_env,
        )

    async def send(self, call: Call) -> Answer:
        """The API's answer, whatever it says. Raises ApiAway once patience is out."""
        patience = Patience(self.reach.patience_s)
        outage = Outage(self.reach)
        while True:
            came = await self._attempt(call)
            if isinstance(came, ApiAway):
                outage.goes_on(came)
                pause_s = patience.next_pause_s()
                if pause_s is None:
                    raise came
            elif not is_passing(came):
                return Answer(came, repeated=patience.tried)
            else:
                outage.goes_on(refusal(came))
                pause_s = patience.next_pause_s(retry_after(came))
                if pause_s is None:
                    return Answer(came, repeated=patience.tried)
            await asyncio.sleep(pause_s)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[httpx2.Response]:
        """An answer that goes on and on. Raises as send does, and never tries again itself."""
        try:
            request = built(self._http, call, timeout=self.reach.stream_timeout)
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
        await self._http.aclose()

    async def _attempt(self, call: Call) -> httpx2.Response | ApiAway:
        """One try; what is given back may be tried again, what is raised may not."""
        try:
            return await self._http.send(built(self._http, call))
        except PASSING as error:
            return away(self.reach, error)
        except httpx2.TransportError as error:
            raise away(self.reach, error) from error
