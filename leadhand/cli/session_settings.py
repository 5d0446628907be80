"""Reads what leadhand.toml sets for the sessions of a command, as fields of their documents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from leadhand.models.folder_settings import FolderSettings


class SessionSettings:
    """The settings for sessions of one folder. All readers raise ClickException."""

    def __init__(self, cwd: str | None) -> None:
        self._folder = Path(cwd or ".").absolute()

    def read_protected(self) -> list[dict[str, object]]:
        """Return the patterns of `[protect] paths`."""
        with _in_one_sentence():
            return [one.model_dump(mode="json") for one in self._settings.protected()]

    def read_quarantine(self) -> list[dict[str, object]]:
        """Return the quarantined tests."""
        with _in_one_sentence():
            return [one.model_dump(mode="json") for one in self._settings.quarantine()]

    def read_leave_out(self) -> dict[str, object]:
        """Return the by-products as a field of documents; {} if they are not set."""
        with _in_one_sentence():
            found = self._settings.leave_out()
        return {} if found is None else {"leave_out": [*found]}

    @property
    def _settings(self) -> FolderSettings:
        from leadhand.models.folder_settings import FolderSettings
        from leadhand.settings import environment

        return FolderSettings(self._folder, environment())


@contextmanager
def _in_one_sentence() -> Iterator[None]:
    from leadhand.models.folder_settings import FolderSettingInvalid

    try:
        yield
    except FolderSettingInvalid as error:
        raise click.ClickException(str(error)) from None
