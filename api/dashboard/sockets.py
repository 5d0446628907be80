"""Prepares the connection of a stream: what is sent goes out at once, and an end is noticed."""

from __future__ import annotations

from collections.abc import Callable

from flask import request

#: Seconds in which a client must take what is sent.
SEND_TIMEOUT_S = 20.0


def connection_check() -> Callable[[], bool]:
    """Returns a check whether this request's client has disconnected; limits the time of a send.

    A thread that only waits for changes would not notice it, and would continue.
    """
    connection = request.environ.get("gunicorn.socket")
    if connection is None:
        return lambda: False
    connection.settimeout(SEND_TIMEOUT_S)
    is_closed: Callable[[], bool] = connection.is_closed
    return is_closed
