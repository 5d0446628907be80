"""Uses the caller's client, or one of its own that is closed after use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from leadhand.client.client import Client


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
