"""Waits for a session that a command started, shows its progress, and prints its result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import click

from leadhand.cli.connect import tell
from leadhand.cli.exit_codes import HALTED, code_of
from leadhand.cli.leave_running import leaving_running
from leadhand.cli.questions import ASKED, answering_questions
from leadhand.cli.render.live import PlainScreen, screen_beside_json, screen_for
from leadhand.cli.render.tables import echo_json
from leadhand.client.client import Client
from leadhand.models.views.result import ResultView
from leadhand.models.views.session import SessionView
from leadhand.run import Audience, Interrupted, wait_for_session


def wait_and_show(
    client: Client,
    session: SessionView,
    *,
    as_json: bool,
    summary: Callable[[ResultView], Iterable[str]],
    is_value: bool = False,
) -> int:
    """Wait for the session, print its result and return its exit code; Ctrl-C stops it.

    With `is_value` the result is printed alone, for other programs to read.
    """
    audience = screen_beside_json() if as_json or is_value else screen_for(sys.stdout)
    try:
        with (
            leaving_running([session.id]),
            answering_questions(client, [session.id], screen=audience, as_json=as_json),
        ):
            result = wait_for_session(client, session, say=tell, audience=audience, shown=ASKED)
        code = code_of(result.status)
    except Interrupted as interrupted:
        result, code = interrupted.result, HALTED
    if as_json:
        echo_json(result)
    else:
        print_summary(summary(result), audience)
    return code


def print_summary(lines: Iterable[str], audience: Audience | None) -> None:
    """Print the summary of a result, without a failure that was printed beside its step."""
    for line in lines:
        click.echo(audience.once(line) if isinstance(audience, PlainScreen) else line)
