"""Reads what leadhand.toml sets for sessions: protected files and quarantined tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import click


class SessionSettings:
    """The settings for sessions of one folder. Both readers raise ClickException."""

    def __init__(self, cwd: str | None) -> None:
        from leadhand.cli.guards.config import FILE

        self._file = Path(cwd or ".").absolute() / FILE

    def read_protected(self) -> list[dict[str, object]]:
        """Return the patterns of `[protect] paths`: of the newest commit, and of the file as it is.

        So a change of the file adds patterns, and removes none before it is committed.
        """
        from leadhand.models.documents import ProtectedPaths

        found: list[dict[str, object]] = []
        with self._naming("protect"):
            for text in (self._committed or "", self._current()):
                asked = self._parse(text).get("protect", {})
                paths = ProtectedPaths.model_validate(asked).paths
                new = [one.model_dump(mode="json") for one in paths]
                found += [one for one in new if one not in found]
        return found

    def read_quarantine(self) -> list[dict[str, object]]:
        """Return the quarantined tests of the folder's repository, or of a plain folder.

        The commit counts, not the folder: what is changed there later, by a doer or before it is
        committed, has no effect.
        """
        from pydantic import TypeAdapter

        from leadhand.models.documents import Quarantined

        with self._naming("quarantine"):
            text = self._current() if self._committed is None else self._committed
            entries = self._parse(text).get("quarantine", [])
            found = TypeAdapter(list[Quarantined]).validate_python(entries)
        return [entry.model_dump(mode="json") for entry in found]

    @cached_property
    def _committed(self) -> str | None:
        from leadhand.local.git_tracking import committed_text
        from leadhand.settings import environment

        return committed_text(self._file.parent, self._file.name, environment())

    def _current(self) -> str:
        from leadhand.models.toml_file import read_text

        return read_text(self._file)

    def _parse(self, text: str) -> dict[str, object]:
        from leadhand.models.toml_file import parse_toml

        return parse_toml(self._file, text)

    @contextmanager
    def _naming(self, section: str) -> Iterator[None]:
        from pydantic import ValidationError

        from leadhand.models.toml_file import TomlUnreadable
        from leadhand.models.validation_messages import first_error

        try:
            yield
        except TomlUnreadable as error:
            raise click.ClickException(str(error)) from None
        except ValidationError as error:
            raise click.ClickException(
                f"{self._file.name}: {section}: {first_error(error)}"
            ) from None
