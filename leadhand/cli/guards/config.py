"""The gates of a Stop guard, from `[guard]` of leadhand.toml or of the user's own file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, StrictBool, ValidationError, field_validator

from leadhand.models.documents import Command, Document, Seconds
from leadhand.models.folder_settings import TomlUnreadable, read_toml
from leadhand.models.guards import MAX_BLOCKS_IN_A_ROW, MOST_BLOCKS, GateName, GuardLimits, Text
from leadhand.models.validation_messages import first_error
from leadhand.settings import ClientSettings

FILE = "leadhand.toml"
GATE_TIMEOUT_S, GIT_TIMEOUT_S, PR_TIMEOUT_S = 300.0, 20.0, 30.0
PR_COMMAND = "gh pr view --json number,state,url,reviewDecision,reviews"
#: Claude Code overrides a hook after this many blocks in a row unless its variable says otherwise.
CLAUDE_CAP = "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"
_CODE = (
    "*.py", "*.js", "*.jsx", "*.ts", "*.tsx", "*.go", "*.rs", "*.java", "*.kt", "*.c", "*.h",
    "*.cc", "*.cpp", "*.hpp", "*.cs", "*.rb", "*.php", "*.swift", "*.scala", "*.hs", "*.lua",
    "*.sh", "*.sql",
)  # fmt: skip
_DOCS = ("docs/*", "doc/*", "*.md", "*.rst", "*.adoc", "*.txt")
#: The gates that only advise: the agent stops with a message.
ADVISES = frozenset({"docs", "pr", "review"})
BEFORE, AFTER = ("build", "test"), ("docs", "pr", "review")
_LIMITS: Mapping[str, int | None] = {"test": 3, "docs": None, "pr": 3, "review": 3}

Globs = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=500)], ...], Field()]
Limit = Annotated[int, Field(strict=True, ge=1, le=1000)]


class GateConfig(Document):
    """One gate: a command whose exit code decides, or a built-in look at git or a pull request."""

    command: Command | None = None
    limit: Limit | None = None
    timeout_s: Seconds | None = None
    #: Whether a failure refuses the stop; by default all do but docs, pr and review.
    blocks: StrictBool | None = None
    enabled: StrictBool = True


class GuardConfig(Document):
    """The gates in their order, limits and guidance."""

    gates: dict[GateName, GateConfig] = Field(default_factory=dict)
    #: By default build, test, a team's own gates, docs, pr, review.
    order: tuple[GateName, ...] = ()
    templates: dict[GateName, Text] = Field(default_factory=dict)
    global_max: Limit | None = None
    stage_max: Limit | None = None
    max_blocks_in_a_row: Limit | None = None
    stale_timeout_s: Annotated[float, Field(ge=60, le=24 * 3600)] | None = None
    #: What counts as code, and as documentation.
    code: Globs = _CODE
    docs: Globs = _DOCS

    @field_validator("order")
    @classmethod
    def _differ(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError("it names a gate twice; name each gate once")
        return value

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the enabled gates (checks before a stop), in running order."""
        own = tuple(name for name in self.gates if name not in (*BEFORE, *AFTER))
        names = self.order or (*BEFORE, *own, *AFTER)
        return tuple(name for name in names if self.gate(name).enabled)

    def gate(self, name: str) -> GateConfig:
        """Return the configuration of a gate (a check before a stop), with defaults."""
        gate = self.gates.get(name, GateConfig())
        default = {"docs": GIT_TIMEOUT_S, "pr": PR_TIMEOUT_S, "review": PR_TIMEOUT_S}
        limit = gate.limit or self.stage_max or _LIMITS.get(name, 5)
        return gate.model_copy(
            update={
                "command": gate.command or (PR_COMMAND if name in ("pr", "review") else None),
                "limit": None if name == "docs" and gate.limit is None else limit,
                "timeout_s": gate.timeout_s or default.get(name, GATE_TIMEOUT_S),
                "blocks": gate.blocks if gate.blocks is not None else name not in ADVISES,
            }
        )

    def with_limit(self, limit: int) -> GuardConfig:
        """Return a copy with this retry limit in every gate; a gate without a limit keeps none."""
        gates = {name: self.gate(name) for name in (*self.names, *self.gates)}
        limited = {
            name: gate.model_copy(update={"limit": limit}) if gate.limit is not None else gate
            for name, gate in gates.items()
        }
        return self.model_copy(update={"gates": limited})

    @property
    def total_s(self) -> float:
        """Return the sum of the timeouts of the enabled gates (checks), in seconds."""
        gates = {name: self.gate(name) for name in self.names}
        return sum(
            gate.timeout_s or 0.0
            for name, gate in gates.items()
            if name == "docs" or gate.command is not None
        )

    def limits(self, settings: ClientSettings, env: Mapping[str, str]) -> GuardLimits:
        """Return the limits over all gates; environment variables override the file."""
        most = blocks_below_cap(env.get(CLAUDE_CAP))
        given = {
            "stops": settings.guard_global_max or self.global_max,
            "blocks_in_a_row": min(self.max_blocks_in_a_row or most, most),
            "stale_s": settings.guard_stale_timeout or self.stale_timeout_s,
        }
        return GuardLimits.model_validate({k: v for k, v in given.items() if v is not None})


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
    if "guard" not in content:
        return None
    try:
        config = GuardConfig.model_validate(content["guard"])
    except ValidationError as error:
        text = f"{file}: guard.{first_error(error, GuardConfig)}"
        raise ConfigUnfit(text, folder) from error
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
