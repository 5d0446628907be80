"""Reads `[[quarantine]]` of leadhand.toml as the newest commit has it."""

from __future__ import annotations

from pathlib import Path

import click


def read_quarantine(cwd: str | None) -> list[dict[str, object]]:
    """Returns the quarantined tests of a folder's repository, or of a plain folder.

    The commit counts, not the folder: what is changed there later, by a doer or before it is
    committed, has no effect. Raises ClickException.
    """
    from pydantic import TypeAdapter, ValidationError

    from leadhand.cli.guards.config import FILE
    from leadhand.local.git_tracking import committed_text
    from leadhand.models.documents import Quarantined
    from leadhand.models.toml_file import TomlUnreadable, parse_toml, read_text
    from leadhand.models.validation_messages import first_error
    from leadhand.settings import environment

    folder = Path(cwd or ".").absolute()
    try:
        text = committed_text(folder, FILE, environment())
        if text is None:
            text = read_text(folder / FILE)
        entries = parse_toml(folder / FILE, text).get("quarantine", [])
        found = TypeAdapter(list[Quarantined]).validate_python(entries)
    except TomlUnreadable as error:
        raise click.ClickException(str(error)) from None
    except ValidationError as error:
        raise click.ClickException(f"{FILE}: quarantine: {first_error(error)}") from None
    return [entry.model_dump(mode="json") for entry in found]
