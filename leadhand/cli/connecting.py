"""Gives commands their client: the API that the environment names, or this folder's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from leadhand.client import Client


@contextmanager
def connected() -> Iterator[Client]:
    """A client for the length of a command; starting this folder's services is told to the user."""
    from leadhand.client import Client
    from leadhand.settings import ClientSettings

    settings = ClientSettings.from_env()
    if settings.url is not None:
        with Client(settings.url, settings.token, say=tell) as client:
            yield client
        return
    from leadhand.embedded import ensure

    folder = settings.home or Path.cwd()
    with (
        ensure(folder, say=tell) as connection,
        Client(connection.url, connection.token, say=tell) as client,
    ):
        yield client


def tell(text: str) -> None:
    """Tell the user how it goes, without touching standard output."""
    click.echo(f"leadhand: {text}", err=True)
    sys.stderr.flush()
