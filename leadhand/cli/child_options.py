"""The options of a command that starts a session, for its use inside a doer or checker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from leadhand.cli.env_options import env_options

_F = TypeVar("_F", bound=Callable[..., Any])


def child_options(command: _F) -> _F:
    """Adds the options --key and --on-parent-end, and those of env_options, to a command."""
    command = env_options(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--key",
        metavar="NAME",
        help="Start the session once: the same NAME again is the same session. In a doer, different"
        " names start two child sessions with equal documents.",
    ),
    click.option(
        "--on-parent-end",
        type=click.Choice(["abort", "let-go-on"]),
        help="In a doer: what happens to the child session when the attempt or its session ends"
        " (abort).",
    ),
)
