"""Reaches the API from a hook: that of LEADHAND_URL, or the user's services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from leadhand.settings import ClientSettings


class Services(NamedTuple):
    """The URL and token of an API."""

    url: str
    token: str | None


@contextmanager
def reach_services(
    env: Mapping[str, str], *, starts: bool, patience_s: float
) -> Iterator[Services | None]:
    """Yields the API's URL and token, with `starts` after starting services; None if none run.

    With `starts` they are started, for which they have `patience_s`. They stay up until the end of
    the `with`.
    """
    settings = ClientSettings.from_env(env)
    if settings.url is not None:
        yield Services(settings.url, settings.token)
        return
    from leadhand.cli.connect import tell
    from leadhand.local.connect import ensure, join
    from leadhand.local.user_state import state_folder

    home = state_folder(env)
    connection = (
        ensure(home, say=tell, env=env, patience_s=patience_s) if starts else join(home, env=env)
    )
    if connection is None:
        yield None
        return
    with connection:
        yield Services(connection.url, connection.token)
