"""URL paths of sessions and flows, with checks of their ids and names."""

from __future__ import annotations

import re
from urllib.parse import quote

from leadhand.errors import local_error
from leadhand.models.patterns import NAME, form_of
from leadhand.models.problems import Kind

_SESSION_ID = re.compile(r"[0-9a-f]{8}")


def session_path(session: str, noun: str = "") -> str:
    """Returns the API path of a session or a resource of it. Raises SessionUnknown for a bad id.

    >>> session_path("0000000a", "result")
    '/v1/sessions/0000000a/result'
    """
    if not _SESSION_ID.fullmatch(session):
        raise local_error(
            Kind.SESSION_UNKNOWN,
            f"{session!r} is not a session id",
            hint="an id is 8 hexadecimal digits; `leadhand ls` lists the sessions",
        )
    return f"/v1/sessions/{session}/{noun}".rstrip("/")


def flow_path(name: str, noun: str = "") -> str:
    """Returns the API path of a flow or a resource of it. Raises FlowUnknown for a bad name.

    >>> flow_path("review", "runs")
    '/v1/flows/review/runs'
    """
    if not re.fullmatch(NAME, name):
        raise local_error(
            Kind.FLOW_UNKNOWN,
            f"no flow is called {name!r}: a name is {form_of(NAME)}",
            hint="`leadhand flows` lists the flows",
        )
    return f"/v1/flows/{quote(name, safe='')}/{noun}".rstrip("/")
