"""Opens and closes the connections of the synchronous client. Not generated: opening differs."""

from __future__ import annotations

from contextlib import ExitStack, closing

from leadhand.client.options import Options, find_api
from leadhand.client.transport import Transport


class Connection:
    """A transport to the API that the options name. The constructor opens it."""

    def __init__(self, options: Options) -> None:
        self._held = ExitStack()
        reach = find_api(options, self._held)
        self.transport = self._held.enter_context(closing(Transport(reach)))

    def open(self) -> None:
        """Do nothing: a connection is open from the start, so a client works without `with`."""

    def close(self) -> None:
        """Close the HTTP transport, then release the embedded local services."""
        self._held.close()
