"""Finds what a folder defines, reads TOML files, and reads leadhand.toml for its sessions."""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from leadhand.models.documents import (
    Document,
    LeaveOut,
    Protected,
    ProtectedPaths,
    Quarantined,
    WorktreeOptions,
)
from leadhand.models.git_settings import committed_text
from leadhand.models.guards import GuardConfig
from leadhand.models.validation_messages import first_error

#: The files that define agents and tools, and the folders of flows and tools with the form of a
#: file in them.
FILES = ("agents.toml", "tools.toml")
#: The header with the folder of a command (percent-encoded), which services on this machine read.
FOLDER_HEADER = "Leadhand-Folder"
FLOWS, TOOLS = "flows", "tools"
FOLDERS = ((FLOWS, "*.json"), (TOOLS, "*.py"))
_AT = re.compile(
    r"^(?P<why>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)$", re.DOTALL
)
FILE = "leadhand.toml"


class WorktreeSection(WorktreeOptions):
    """`[worktree]` of leadhand.toml."""

    #: Patterns of untracked files that are no work, for all sessions in the folder; by default
    #: those of common by-products.
    leave_out: LeaveOut | None = None


class FolderFile(Document):
    """What leadhand.toml may have: reading, refusals and docs/settings.md follow from this.

    A field with a comment is a key of that meaning, one without is a table of them.
    """

    protect: ProtectedPaths = ProtectedPaths()
    quarantine: tuple[Quarantined, ...] = ()
    worktree: WorktreeSection | None = None
    guard: GuardConfig | None = None


def read_section(file: Path | str, content: Mapping[str, object], name: str) -> Any:
    """Returns a section of leadhand.toml as FolderFile declares it.

    Faults in the others do not matter, but a section that is not declared is one. Raises
    FolderSettingInvalid, which names the file.
    """
    others = FolderFile.model_fields.keys() - {name}
    try:
        found = FolderFile.model_validate({k: v for k, v in content.items() if k not in others})
    except ValidationError as error:
        raise FolderSettingInvalid(f"{file}: {first_error(error, FolderFile)}") from None
    return getattr(found, name)


def folder_with_definitions(folder: Path, home: Path | None) -> Path | None:
    """Returns the nearest folder with definitions, from `folder` up to its repository's root.

    Without a repository only the folder itself is looked at. The user's `home` folder and those
    above it are not: None then, and if none of the folders defines anything.
    """
    for place in _places(folder.absolute(), home):
        if any(definition_files(place)):
            return place
    return None


def definition_files(folder: Path) -> Iterator[Path]:
    """Yields the files of a folder that define agents, flows or tools; none if it is unreadable."""
    try:
        for file in (folder / name for name in FILES):
            if file.is_file():
                yield file
        for name, form in FOLDERS:
            yield from (folder / name).glob(form)
    except OSError:
        return


def _places(folder: Path, home: Path | None) -> Iterator[Path]:
    home = (home or Path("/")).absolute()
    above = (folder, *folder.parents)
    root = next((place for place in above if _is_repository(place)), folder)
    for place in above:
        if place == home or place in home.parents:
            return
        yield place
        if place == root:
            return


def _is_repository(folder: Path) -> bool:
    try:
        return (folder / ".git").exists()
    except OSError:
        return False


class TomlUnreadable(ValueError):
    """A file exists and cannot be read as TOML."""

    def __init__(self, file: str, line: int | None, why: str, text: str = "") -> None:
        super().__init__(file, line, why, text)
        self.file = file
        self.line = line
        self.why = why
        self.text = text

    def __str__(self) -> str:
        return f"{place_in(self.file, self.line)}: {self.why}"


def place_in(file: str, line: int | None) -> str:
    """Formats a file and a line of it, for error messages.

    >>> place_in("agents.toml", 3), place_in("agents.toml", None)
    ('agents.toml, line 3', 'agents.toml')
    """
    return file if line is None else f"{file}, line {line}"


def read_toml(file: Path) -> tuple[str, dict[str, object]]:
    """Reads a TOML file; returns its text and content, both empty if it does not exist.

    Raises TomlUnreadable.
    """
    text = read_text(file)
    return text, parse_toml(file, text)


def read_text(file: Path) -> str:
    """Reads the text of a TOML file; empty if it does not exist. Raises TomlUnreadable."""
    try:
        content = _content(file)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        why = f"cannot be read: {error.strerror}; make it a file that the worker's user can read"
        raise TomlUnreadable(str(file), None, why) from error
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        why, text = "is not UTF-8; save the file as UTF-8", content.decode(errors="replace")
        raise TomlUnreadable(str(file), line, why, text) from None
    return text


def line_of(text: str, path: Sequence[str]) -> int | None:
    r"""Returns the line (from 1) of the deepest part of a key path that a TOML text has; else None.

    A text that ends within a statement is not TOML. So the shortest beginning of the text that
    is TOML and has the key ends with the statement that defines it.

    >>> text = "[agents.x]\n\ncommand = [\n  'a',\n]\n"
    >>> line_of(text, ["agents", "x"]), line_of(text, ["agents", "x", "command", "0"])
    (1, 3)
    """
    whole, wanted = tomllib.loads(text), list(path)
    while wanted and not _has(whole, wanted):
        wanted.pop()
    if not wanted:
        return None
    lines = text.split("\n")
    low, high = 0, len(lines)  # the key is not in the first `low` lines, and in the first `high`
    while high - low > 1:
        ends = _ending_near(lines, low, high)
        if ends is None:
            break
        if _has(tomllib.loads(_first(lines, ends)), wanted):
            high = ends
        else:
            low = ends
    while low < high - 1 and lines[low].lstrip()[:1] in ("", "#"):
        low += 1
    return low + 1


def _ending_near(lines: Sequence[str], low: int, high: int) -> int | None:
    """A number of lines between two, near their middle, after which a statement ends."""
    middle = (low + high) // 2
    counts: list[int] = [*range(middle, low, -1), *range(middle + 1, high)]
    for count in counts:
        try:
            tomllib.loads(_first(lines, count))
        except ValueError:
            continue
        return count
    return None


def _first(lines: Sequence[str], count: int) -> str:
    return "\n".join(lines[:count])


def _has(value: object, path: Sequence[str]) -> bool:
    for name in path:
        if not (isinstance(value, Mapping) and name in value):
            return False
        value = value[name]
    return True


def _content(file: Path) -> bytes:
    """The bytes of a regular file; to read a pipe would block."""
    opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        with open(opened, "rb", closefd=False) as stream:
            return stream.read()
    finally:
        os.close(opened)


def parse_toml(file: Path, text: str) -> dict[str, object]:
    """Parses the text of a TOML file. Raises TomlUnreadable."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TomlUnreadable(str(file), None, "is nested too deep; simplify it", text) from None
    except ValueError as error:
        found = _AT.match(str(error))
        why = found["why"] if found else str(error)
        line = int(found["line"]) if found and found["line"] else text.count("\n") + 1
        why = f"is not TOML: {why}; correct this line"
        raise TomlUnreadable(str(file), line, why, text) from None


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
        with _one_error():
            for text in (self._committed or "", "" if committed_only else read_text(self._file)):
                found |= dict.fromkeys(self._section("protect", text).paths)
        return tuple(found)

    def quarantine(self) -> tuple[Quarantined, ...]:
        """Returns the quarantined tests of the folder's repository, or of a plain folder.

        The commit counts, not the folder: what is changed there later, by a doer or before it is
        committed, has no effect.
        """
        with _one_error():
            found: tuple[Quarantined, ...] = self._section("quarantine", self._text())
            return found

    def leave_out(self) -> tuple[str, ...] | None:
        """Returns `leave_out` of `[worktree]`; None if it is not set. The commit counts, too."""
        with _one_error():
            section: WorktreeSection | None = self._section("worktree", self._text())
            return None if section is None else section.leave_out

    def _section(self, name: str, text: str) -> Any:
        return read_section(FILE, parse_toml(self._file, text), name)

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
def _one_error() -> Iterator[None]:
    try:
        yield
    except TomlUnreadable as error:
        raise FolderSettingInvalid(str(error)) from None


@lru_cache(maxsize=64)
def _committed_at(
    folder: Path, env: tuple[tuple[str, str], ...], _stamp: tuple[int, int]
) -> str | None:
    """The committed file, read once for each state of the repository."""
    return committed_text(folder, FILE, dict(env))
