"""The option --worktree of the commands that start a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def worktree_option(command: F) -> F:
    """Adds the option --worktree to a command."""
    option = click.option(
        "--worktree",
        is_flag=True,
        help="Work in a git worktree of the folder's repository, or in a copy of a plain folder;"
        " `leadhand apply` brings the work home.",
    )
    return option(command)


def worktree_field(cwd: str | None) -> object:
    """Returns the `worktree` field of a document: options from leadhand.toml, or true.

    Raises ClickException for a file that is not valid.
    """
    from pydantic import ValidationError

    from leadhand.models.documents import WorktreeOptions
    from leadhand.models.toml_file import TomlUnreadable, read_toml
    from leadhand.models.validation_messages import first_error

    file = _top(Path(cwd or ".").absolute()) / "leadhand.toml"
    try:
        asked = read_toml(file)[1].get("worktree")
        return True if asked is None else WorktreeOptions.model_validate(asked).model_dump()
    except TomlUnreadable as error:
        raise click.ClickException(str(error)) from None
    except ValidationError as error:
        raise click.ClickException(f"{file}: worktree: {first_error(error)}") from None


def _top(folder: Path) -> Path:
    """The top of the repository that a folder is in; the folder itself outside of any."""
    above = (one for one in (folder, *folder.parents) if (one / ".git").exists())
    return next(above, folder)
