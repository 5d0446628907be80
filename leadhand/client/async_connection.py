"""Opens and closes the connections of the asynchronous client, which is not open from the start."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from leadhand.client.async_transport import AsyncTransport
from leadhand.client.options import Options, find_api


class AsyncConnection:
    """A transport to the API that the options name, for one event loop. `open` opens it."""

    transport: AsyncTransport

    def __init__(self, options: Options) -> None:
        self._options = options
        self._held = ExitStack()

    async def open(self) -> None:
        """Find the API or start embedded services, in a thread, and create the transport to it."""
        self.transport = AsyncTransport(
            await asyncio.to_thread(find_api, self._options, self._held)
        )

    async def close(self) -> None:
        """Close the HTTP transport, then release the embedded local services, in a thread."""
        await self.transport.close()
        await asyncio.to_thread(self._held.close)
