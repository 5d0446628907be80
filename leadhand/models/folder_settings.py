"""Reads what leadhand.toml of a folder sets for its sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from leadhand.models.documents import LeaveOut, Protected, ProtectedPaths, Quarantined
from leadhand.models.git_tracking import committed_text
from leadhand.models.toml_file import TomlUnreadable, parse_toml, read_text
from leadhand.models.validation_messages import first_error

FILE = "leadhand.toml"
_QUARANTINE = TypeAdapter(tuple[Quarantined, ...])
_LEAVE_OUT: TypeAdapter[tuple[str, ...]] = TypeAdapter(LeaveOut)


class FolderSettingInvalid(ValueError):
    """The file cannot be read, or has an invalid setting."""


class SessionSettings(NamedTuple):
    """What the file sets for a session."""

    protected: tuple[Protected, ...] = ()
    quarantine: tuple[Quarantined, ...] = ()
    #: None if it is not set.
    leave_out: tuple[str, ...] | None = None


class FolderSettings:
    """The settings for sessions of one folder. All readers raise FolderSettingInvalid."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._file = folder / FILE
        self._env = env

    def protected(self, *, committed_only: bool = False) -> tuple[Protected, ...]:
        """Returns the patterns of `[protect] paths`: of the newest commit and of the file as it is.

        So a change of the file adds patterns, and removes none before it is committed.
        """
        found = dict[Protected, None]()
        with self._naming("protect"):
            for text in (self._committed or "", "" if committed_only else read_text(self._file)):
                asked = parse_toml(self._file, text).get("protect", {})
                found |= dict.fromkeys(ProtectedPaths.model_validate(asked).paths)
        return tuple(found)

    def quarantine(self) -> tuple[Quarantined, ...]:
        """Returns the quarantined tests of the folder's repository, or of a plain folder.

        The commit counts, not the folder: what is changed there later, by a doer or before it is
        committed, has no effect.
        """
        with self._naming("quarantine"):
            entries = parse_toml(self._file, self._text()).get("quarantine", [])
            return _QUARANTINE.validate_python(entries)

    def leave_out(self) -> tuple[str, ...] | None:
        """Returns `leave_out` of `[worktree]`; None if it is not set. The commit counts, too."""
        with self._naming("worktree.leave_out"):
            section = parse_toml(self._file, self._text()).get("worktree")
            if not isinstance(section, dict) or "leave_out" not in section:
                return None
            return _LEAVE_OUT.validate_python(section["leave_out"])

    def _text(self) -> str:
        return read_text(self._file) if self._committed is None else self._committed

    @cached_property
    def _committed(self) -> str | None:
        folder = self._file.parent
        try:  # each commit and checkout writes this file
            status = (folder / ".git/logs/HEAD").stat()
        except OSError:
            return committed_text(folder, FILE, self._env)
        env = tuple(sorted(self._env.items()))
        return _committed_at(folder, env, (status.st_mtime_ns, status.st_size))

    @contextmanager
    def _naming(self, section: str) -> Iterator[None]:
        try:
            yield
        except TomlUnreadable as error:
            raise FolderSettingInvalid(str(error)) from None
        except ValidationError as error:
            raise FolderSettingInvalid(f"{FILE}: {section}: {first_error(error)}") from None


@lru_cache(maxsize=64)
def _committed_at(
    folder: Path, env: tuple[tuple[str, str], ...], _stamp: tuple[int, int]
) -> str | None:
    """The committed file, read once for each state of the repository."""
    return committed_text(folder, FILE, dict(env))
