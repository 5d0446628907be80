"""The gates of a Stop guard, from `[guard]` of leadhand.toml or of the user's own file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from leadhand.models.folder_settings import (
    FILE,
    FolderSettingInvalid,
    TomlUnreadable,
    read_section,
    read_toml,
)
from leadhand.models.guards import MAX_BLOCKS_IN_A_ROW, MOST_BLOCKS, GuardConfig, GuardLimits
from leadhand.settings import ClientSettings

#: Claude Code overrides a hook after this many blocks in a row unless its variable says otherwise.
CLAUDE_CAP = "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"


class Loaded(NamedTuple):
    """A configuration, and the file that it is of."""

    config: GuardConfig
    file: Path | None = None
    text: str = ""
    #: Whether the file is the user's own, which needs no trust.
    is_own: bool = True
    #: The project's folder, in which the gates run.
    folder: Path = Path()
    #: The project's files that were looked at first and have no `[guard]`, or do not exist.
    without: tuple[Path, ...] = ()


def limits_of(config: GuardConfig, settings: ClientSettings, env: Mapping[str, str]) -> GuardLimits:
    """Returns the limits over all gates; environment variables override the file."""
    most = blocks_below_cap(env.get(CLAUDE_CAP))
    given = {
        "stops": settings.guard_global_max or config.global_max,
        "blocks_in_a_row": min(config.max_blocks_in_a_row or most, most),
        "stale_s": settings.guard_stale_timeout or config.stale_timeout_s,
    }
    return GuardLimits.model_validate({k: v for k, v in given.items() if v is not None})


def blocks_below_cap(cap: str | None) -> int:
    """Returns how many blocks in a row a guard may make: below the agent's cap, or a default.

    >>> blocks_below_cap(None), blocks_below_cap("12"), blocks_below_cap("1"), blocks_below_cap("x")
    (7, 11, 1, 7)
    """
    number = int(cap) if cap and re.fullmatch("[0-9]{1,50}", cap) else 0
    return min(max(1, number - 1), MOST_BLOCKS) if number else MAX_BLOCKS_IN_A_ROW


def load_config(folder: Path, env: Mapping[str, str]) -> Loaded:
    """Loads the guard's configuration: of the project, else the user's, else the defaults.

    The project's is that of the nearest file with `[guard]`, up to the repository's root. Raises
    ConfigUnfit.
    """
    without: list[Path] = []
    for project in searched_folders(folder, env):
        loaded = _load(project / FILE, project, is_own=False)
        if loaded is not None:
            return loaded._replace(without=tuple(without))
        without.append(project / FILE)
    own = _load(own_file(env), folder, is_own=True) or Loaded(GuardConfig(), folder=folder)
    return own._replace(without=tuple(without))


def searched_folders(folder: Path, env: Mapping[str, str]) -> list[Path]:
    """Returns the folders in which leadhand.toml is looked for, the nearest first.

    They are the folder and those above it up to the repository's root, but never above HOME.
    Outside a repository it is only the folder itself.
    """
    start, home = folder.resolve(), Path(env.get("HOME") or Path.home()).resolve()
    found: list[Path] = []
    for one in (start, *start.parents):
        found.append(one)
        if (one / ".git").exists():
            return found
        if one == home:
            break
    return [start]


def _load(file: Path, folder: Path, *, is_own: bool) -> Loaded | None:
    """The configuration of a file; None if it has no `[guard]`. Raises ConfigUnfit."""
    try:
        text, content = read_toml(file)
    except TomlUnreadable as error:
        raise ConfigUnfit(str(error), folder) from error
    try:
        config = read_section(file, {"guard": content.get("guard")}, "guard")
    except FolderSettingInvalid as error:
        raise ConfigUnfit(str(error), folder) from error
    if config is None:
        return None
    return Loaded(config, file, text, is_own, folder)


def own_file(env: Mapping[str, str]) -> Path:
    """Returns the path of the user's own leadhand.toml, in XDG_CONFIG_HOME or ~/.config."""
    named = Path(env.get("XDG_CONFIG_HOME") or "")
    folder = named if named.is_absolute() else Path(env.get("HOME") or Path.home()) / ".config"
    return folder / "leadhand" / FILE


class ConfigUnfit(Exception):
    """The configuration of a guard cannot be used; the message names the file and the fault."""

    def __init__(self, text: str, folder: Path) -> None:
        super().__init__(text, folder)
        #: The project's folder.
        self.folder = folder

    def __str__(self) -> str:
        return str(self.args[0])
