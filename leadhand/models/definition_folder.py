"""Finds the folder whose agents, flows and tools apply in a working folder (decision 81)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

#: The files that define agents and tools, and the folders of flows and tools with the form of a
#: file in them.
FILES = ("agents.toml", "tools.toml")
#: The header with the folder of a command (percent-encoded), which services on this machine read.
FOLDER_HEADER = "Leadhand-Folder"
FLOWS, TOOLS = "flows", "tools"
FOLDERS = ((FLOWS, "*.json"), (TOOLS, "*.py"))


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
