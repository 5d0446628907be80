"""Reaches the API from a hook: that of LEADHAND_URL, or the services of the project's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from leadhand.settings import ClientSettings


class Services(NamedTuple):
    """The URL and token of an API."""

    url: str
    token: str | None


@contextmanager
def reach_services(
    folder: Path, env: Mapping[str, str], *, patience_s: float
) -> Iterator[Services]:
    """The API of LEADHAND_URL, or that of the folder's services, which are started if need be.

    They stay up until the end of the `with`, and have `patience_s` to start.
    """
    settings = ClientSettings.from_env(env)
    if settings.url is not None:
        yield Services(settings.url, settings.token)
        return
    from leadhand.cli.connect import tell
    from leadhand.local.connect import ensure

    home = settings.home or folder
    with ensure(home, say=tell, env=env, patience_s=patience_s) as connection:
        yield Services(connection.url, connection.token)
