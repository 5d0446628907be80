"""The names of errors in a step's `retry_on` (pure)."""

from __future__ import annotations

import re

#: The step took longer than its timeout; the service that it asked was busy.
TIMEOUT, BUSY = "timeout", "busy"
#: A server could not be reached, or the connection to it broke: as exceptions of Python are named.
CONNECTION = ("ConnectionError", "OSError")

_NAMED = re.compile(
    r"timeout|busy|exit ([1-9]\d?|1\d\d|2[0-4]\d|25[0-5])|http ([1-5]\d\d|[1-5]xx)"
    r"|[A-Z_]\w*"
)


def exit_error(code: int) -> str:
    """Returns the error name of a command that exited with this code, such as `exit 75`."""
    return f"exit {code}"


def http_error(status: int) -> str:
    """Returns the error name of an HTTP request with this status, such as `http 503`."""
    return f"http {status}"


def check_error_name(name: str) -> str:
    """Returns the name of an error to retry a step on (`exit 75`); raises ValueError if invalid.

    >>> [check_error_name(name) for name in ("ConnectionError", "http 5xx", "exit 75")]
    ['ConnectionError', 'http 5xx', 'exit 75']
    """
    if _NAMED.fullmatch(name) is None:
        raise ValueError(
            "it is not an error; give the name of an exception's class, 'exit 75', 'http 503', "
            "'http 5xx', 'timeout' or 'busy'"
        )
    return name
