"""Attends a session that a command has begun, and shows what came of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import click

from leadhand.attending import Interrupted, attend
from leadhand.cli.codes import HALTED, code_of
from leadhand.cli.connecting import tell
from leadhand.cli.screens import screen_beside_json, screen_for
from leadhand.cli.tables import echo_json
from leadhand.client import Client
from leadhand.views import ResultView, SessionView


def attended(
    client: Client,
    session: SessionView,
    *,
    as_json: bool,
    summary: Callable[[ResultView], Iterable[str]],
) -> int:
    """The exit code of the session's end, or of Ctrl-C; its result is printed either way."""
    audience = screen_beside_json() if as_json else screen_for(sys.stdout)
    try:
        result = attend(client, session, say=tell, audience=audience)
        code = code_of(result.status)
    except Interrupted as interrupted:
        result, code = interrupted.result, HALTED
    if as_json:
        echo_json(result)
    else:
        for line in summary(result):
            click.echo(line)
    return code
