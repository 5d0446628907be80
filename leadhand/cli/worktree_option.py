"""The option --worktree of the commands that start a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def worktree_option(command: F) -> F:
    """Adds --worktree."""
    option = click.option(
        "--worktree",
        is_flag=True,
        help="Work in a git worktree of the folder's repository, or in a copy of a plain folder;"
        " `leadhand apply` brings the work home.",
    )
    return option(command)
