"""Connects a command to the API: that of LEADHAND_URL, or the user's own services."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.render.times import with_local_times

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views.session import SessionView


@contextmanager
def open_client(*, needs_worker: bool, outlives_attempt: bool = False) -> Iterator[Client]:
    """Opens an API client for one command; starts the user's services if necessary.

    With `outlives_attempt` it uses the session's token where there is one. Without `needs_worker`
    it does not wait for the worker of services that start.
    """
    from leadhand.cli.options import chosen_python, passed_variables
    from leadhand.client.client import Client
    from leadhand.contract.here import Here
    from leadhand.settings import ClientSettings, current_folder, current_umask, environment

    settings = ClientSettings.from_env()
    own = settings.url is None and settings.redis_url is None
    here = Here(
        environment(),
        passed_variables(),
        is_embedded=own,
        python=chosen_python() or (sys.executable if own else None),
        folder=current_folder() if settings.url is None else None,
        umask=current_umask(),
    )
    with (
        reach(outlives_attempt=outlives_attempt, needs_worker=needs_worker) as (url, token),
        Client(url, token, say=tell, here=here) as client,
    ):
        yield client


@contextmanager
def reach(
    *, needs_worker: bool, outlives_attempt: bool = False
) -> Iterator[tuple[str, str | None]]:
    """Yields the API's URL and token; without LEADHAND_URL it starts the user's own services.

    With `outlives_attempt` the token is the session's where there is one.
    """
    from leadhand.settings import ClientSettings

    settings = ClientSettings.from_env()
    if settings.url is not None:
        yield settings.url, (outlives_attempt and settings.session_token) or settings.token
        return
    from leadhand.local.connect import ensure

    with ensure(say=tell, needs_worker=needs_worker) as connection:
        yield connection.url, connection.token


def shows(
    method: str, *, needs_worker: bool, with_json: bool = False
) -> Callable[[Callable[..., Iterable[str]]], Callable[..., int]]:
    """Makes a command that is no more than a method of the client, of the lines that it prints.

    The parameters of the command are those of the method. The function is given them, and first
    the method's result, which the option `--json` prints as it is.
    """

    def command_of(lines: Callable[..., Iterable[str]]) -> Callable[..., int]:
        @functools.wraps(lines)
        def run(*, as_json: bool = False, **given: Any) -> int:
            from leadhand.cli.render.tables import echo_json

            with open_client(needs_worker=needs_worker) as client:
                found = getattr(client, method)(**given)
            if as_json and isinstance(found, list):
                echo_json({"items": [one.model_dump(mode="json") for one in found]})
            elif as_json:
                echo_json(found)
            else:
                for line in lines(found, **given):
                    click.echo(line)
            return 0

        option = click.option(
            "--json", "as_json", is_flag=True, help="Print exactly one JSON object."
        )
        return option(run) if with_json else run

    return command_of


def tell_warnings(session: SessionView) -> None:
    """Prints the warnings of a session that was just submitted to standard error."""
    from leadhand.models.text import plain

    for warning in session.warnings:
        tell(f"warning: {plain(warning, most=400)}")


def tell(text: str) -> None:
    """Prints a progress message for the user to standard error."""
    # With err=True click writes past a live view's own `sys.stderr`, and the view draws over it.
    click.echo(f"leadhand: {with_local_times(text)}", file=sys.stderr)
    sys.stderr.flush()
