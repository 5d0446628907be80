"""The options --worktree and --no-prepare of the commands that start a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def worktree_option(command: F) -> F:
    """Adds the options --worktree and --no-prepare to a command."""
    without = click.option(
        "--no-prepare",
        is_flag=True,
        help="With --worktree: do not run the command that leadhand.toml prepares the folder with.",
    )
    option = click.option(
        "--worktree",
        is_flag=True,
        help="Work in a git worktree of the folder's repository, or in a copy of a plain folder;"
        " `leadhand apply` brings the work home.",
    )
    return option(without(command))


def worktree_field(cwd: str | None, *, worktree: bool, no_prepare: bool) -> object:
    """Returns the `worktree` field of a document: options from leadhand.toml, or true or false.

    Raises ClickException for a file that is not valid, and for a command in it that the user has
    not approved: it comes with a clone.
    """
    if not worktree:
        if no_prepare:
            raise click.UsageError("--no-prepare needs --worktree: only that prepares a folder")
        return False
    from pydantic import ValidationError

    from leadhand.cli.guards.config import FILE, searched_folders
    from leadhand.models.documents import WorktreeOptions
    from leadhand.models.toml_file import TomlUnreadable, read_toml
    from leadhand.models.validation_messages import first_error
    from leadhand.settings import environment

    file = searched_folders(Path(cwd or "."), environment())[-1] / FILE
    try:
        text, content = read_toml(file)
        asked = _without_leave_out(content.get("worktree"))
        if asked is None:
            return True
        options = WorktreeOptions.model_validate(asked)
    except TomlUnreadable as error:
        raise click.ClickException(str(error)) from None
    except ValidationError as error:
        raise click.ClickException(f"{file}: worktree: {first_error(error)}") from None
    if no_prepare:
        options = options.model_copy(update={"prepare": None})
    if options.prepare is not None:
        _require_approval(file, text, options.prepare)
    return options.model_dump()


def _without_leave_out(section: object) -> object:
    """`[worktree]` of leadhand.toml without the setting that sessions in any folder have."""
    if not isinstance(section, dict):
        return section
    return {name: value for name, value in section.items() if name != "leave_out"}


def _require_approval(file: Path, text: str, command: str) -> None:
    from leadhand.cli.approvals import why_unapproved
    from leadhand.models.text import plain
    from leadhand.settings import environment

    why = why_unapproved(file, text, environment())
    if why is not None:
        raise click.ClickException(
            f"{why}, and its [worktree] would run: {plain(command)}; look at it, then run"
            f" `leadhand trust {file.parent}`, or leave the command out with --no-prepare"
        )
