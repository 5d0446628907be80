"""Finds the API for a client's options: a URL, the environment, or the embedded stack."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from leadhand.client.calls import Reach
from leadhand.settings import ClientSettings


class Options(NamedTuple):
    """The arguments of a client."""

    url: str | None
    token: str | None
    timeout_s: float
    patience_s: float
    say: Callable[[str], None] | None


def find_api(options: Options, held: ExitStack) -> Reach:
    """Returns URL and token of the API: from the options, the environment, or embedded services.

    An embedded stack runs for as long as `held` is open. Starting it can take seconds.
    """
    settings = ClientSettings.from_env()
    url = options.url or settings.url
    if url is not None:
        return _reach(options, url, options.token or settings.token or "")
    from leadhand.local.connect import ensure

    connection = held.enter_context(ensure())
    return _reach(options, connection.url, options.token or connection.token)


def _reach(options: Options, url: str, token: str) -> Reach:
    return Reach(url, token, options.timeout_s, options.patience_s, options.say)
