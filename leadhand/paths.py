"""Where in the API a session's things are."""

from __future__ import annotations

import re
from urllib.parse import quote

from leadhand.errors import FlowUnknown, SessionUnknown
from leadhand.patterns import NAME, form_of
from leadhand.problems import Kind, Problem

_SESSION_ID = re.compile(r"[0-9a-f]{8}")


def session_path(session: str, noun: str = "") -> str:
    """The path of a session, or of one of its things. Raises SessionUnknown for no id at all.

    >>> session_path("0000000a", "result")
    '/v1/sessions/0000000a/result'
    """
    if not _SESSION_ID.fullmatch(session):
        raise SessionUnknown(
            Problem(
                type=Kind.SESSION_UNKNOWN.uri,
                title="No such session",
                status=404,
                detail=f"{session!r} is no session id",
                hint="an id is 8 hexadecimal digits; `leadhand ls` lists those that are",
            ),
            404,
        )
    return f"/v1/sessions/{session}/{noun}".rstrip("/")


def flow_path(name: str, noun: str = "") -> str:
    """The path of a flow, or of one of its things. Raises FlowUnknown for what is no name of one.

    >>> flow_path("review", "runs")
    '/v1/flows/review/runs'
    """
    if not re.fullmatch(NAME, name):
        raise FlowUnknown(
            Problem(
                type=Kind.FLOW_UNKNOWN.uri,
                title="No such flow",
                status=404,
                detail=f"no flow is called {name!r}: a name is {form_of(NAME)}",
                hint="`leadhand flows` lists those that there are",
            ),
            404,
        )
    return f"/v1/flows/{quote(name, safe='')}/{noun}".rstrip("/")
