"""Finds the API for a client's options: a URL, the environment, or the embedded stack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from leadhand.client.calls import Reach
from leadhand.client.submit.here import Here
from leadhand.settings import ClientSettings, current_folder, environment


class Options(NamedTuple):
    """The arguments of a client."""

    url: str | None
    token: str | None
    timeout_s: float
    patience_s: float
    say: Callable[[str], None] | None
    here: Here | None = None


def find_api(options: Options, held: ExitStack) -> Reach:
    """Returns the URL and token of the API; starts embedded services if no URL is configured.

    An embedded stack runs for as long as `held` is open. Starting it can take seconds.
    """
    settings = ClientSettings.from_env()
    url = options.url or settings.url
    if url is not None:
        return _reach(options, url, options.token or settings.token or "", is_embedded=False)
    from leadhand.local.connect import ensure

    connection = held.enter_context(ensure())
    # Services on another Redis may have workers elsewhere.
    own = settings.redis_url is None
    token = options.token or connection.token
    return _reach(options, connection.url, token, is_embedded=own, folder=current_folder())


def _reach(
    options: Options, url: str, token: str, *, is_embedded: bool, folder: Path | None = None
) -> Reach:
    here = options.here or Here(
        environment(),
        is_embedded=is_embedded,
        python=sys.executable if is_embedded else None,
        folder=folder,
    )
    return Reach(url, token, options.timeout_s, options.patience_s, options.say, here)
