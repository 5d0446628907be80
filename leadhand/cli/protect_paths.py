"""Reads `[protect]` of leadhand.toml: files that no doer may change."""

from __future__ import annotations

from pathlib import Path

import click


def protected_paths(cwd: str | None) -> list[dict[str, object]]:
    """Returns the patterns of `[protect] paths`: of the newest commit, and of the file as it is.

    So a change of the file adds patterns, and removes none before it is committed. Raises
    ClickException.
    """
    from pydantic import ValidationError

    from leadhand.cli.guards.config import FILE
    from leadhand.local.git_tracking import committed_text
    from leadhand.models.documents import ProtectedPaths
    from leadhand.models.toml_file import TomlUnreadable, parse_toml, read_text
    from leadhand.models.validation_messages import first_error
    from leadhand.settings import environment

    folder = Path(cwd or ".").absolute()
    found: list[dict[str, object]] = []
    try:
        for text in (committed_text(folder, FILE, environment()), read_text(folder / FILE)):
            asked = parse_toml(folder / FILE, text or "").get("protect", {})
            paths = ProtectedPaths.model_validate(asked).paths
            new = [one.model_dump(mode="json") for one in paths]
            found += [one for one in new if one not in found]
    except TomlUnreadable as error:
        raise click.ClickException(str(error)) from None
    except ValidationError as error:
        raise click.ClickException(f"{FILE}: protect: {first_error(error)}") from None
    return found
