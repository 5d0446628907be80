"""The models of Stop guards: their gates in leadhand.toml, and what hooks send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StrictBool, field_validator, model_validator

from leadhand.models import patterns
from leadhand.models.documents import Command, Document, Seconds

#: Failing stops of an agent session after which a guard gives up; failures of one gate in a row.
GLOBAL_MAX, STAGE_MAX = 15, 5
#: Seconds after which a hook that has not answered is taken for dead, and the least of them.
STALE_TIMEOUT_S, LEAST_STALE_TIMEOUT_S = 300.0, 60.0
#: Blocks in a row that are safe: Claude Code overrides the ninth without a word.
MAX_BLOCKS_IN_A_ROW = 7
#: The most blocks in a row that a limit may allow.
MOST_BLOCKS = 100_000
GATE_TIMEOUT_S, GIT_TIMEOUT_S, PR_TIMEOUT_S = 300.0, 20.0, 30.0
PR_COMMAND = "gh pr view --json number,state,url,reviewDecision,reviews"
#: The characters of a gate's output that guidance shows, and those of a gate at its limit.
OUTPUT, OUTPUT_WHEN_STUCK = 2000, 1000
#: The gates of one stop.
MAX_GATES = 50

AgentSession = Annotated[str, Field(pattern=patterns.AGENT_SESSION)]
#: A gate is named like a template: `fix-NAME` and `NAME-stuck` are its own.
GateName = Annotated[str, Field(pattern=patterns.GATE)]
Text = Annotated[str, Field(max_length=20_000)]
Outcome = Literal["passed", "failed", "skipped", "unfinished"]


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

    #: Passes with exit code 0. Without one the gate is passed over, but for `docs`, `pr`, `review`.
    command: Command | None = None
    #: Failures in a row after which it gives up; by default those of `stage_max`.
    limit: Limit | None = None
    #: Seconds that it may take; by default 300, `docs` 20, `pr` and `review` 30.
    timeout_s: Seconds | None = None
    #: Whether a failure refuses the stop; by default all do but docs, pr and review.
    blocks: StrictBool | None = None
    #: Whether it runs.
    enabled: StrictBool = True


class GuardConfig(Document):
    """The gates in their order, limits and guidance."""

    gates: dict[GateName, GateConfig] = Field(default_factory=dict)
    #: The gates that run; by default build, test, your own, docs, pr, review.
    order: tuple[GateName, ...] = ()
    #: Guidance by name: `fix-NAME` and `NAME-stuck` of a gate.
    templates: dict[GateName, Text] = Field(default_factory=dict)
    #: Failing stops after which the guard gives up; by default 15.
    global_max: Limit | None = None
    #: The `limit` of gates that have none; by default 5, `test`, `pr` and `review` 3.
    stage_max: Limit | None = None
    #: Blocks in a row; by default 7, at most one below the agent's own limit.
    max_blocks_in_a_row: Limit | None = None
    #: Seconds after which a hook without a sign of life is replaced; by default 300.
    stale_timeout_s: Annotated[float, Field(ge=60, le=24 * 3600)] | None = None
    #: Globs of what counts as code; by default the endings of common languages.
    code: Globs = _CODE
    #: Globs of what counts as documentation; by default `docs/*`, `doc/*` and common endings.
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


class _Report(Document):
    """Texts stay as they are, with the spaces around them."""

    model_config = ConfigDict(str_strip_whitespace=False)


class GateResult(_Report):
    """What a hook found at one gate. A gate after one that ends a stop has no result."""

    name: GateName
    #: skipped: it has no command, or nothing to look at; unfinished: the hook's time was over.
    outcome: Outcome
    #: The end of its output, or why it was passed over.
    output: Text = ""
    #: The guidance of a failure, and of one at its limit; by default those of the gate.
    template: GateName | None = None
    stuck_template: GateName | None = None
    #: The failures in a row that it allows; null: any number.
    limit: Annotated[int, Field(strict=True, ge=1, le=1000)] | None = STAGE_MAX
    #: Whether a failure refuses the stop; otherwise the agent stops with a message.
    blocks: StrictBool = True
    seconds: Annotated[float, Field(strict=True, ge=0, le=7 * 24 * 3600)] = 0.0


class GuardLimits(_Report):
    """The limits of a guard over all its gates."""

    stops: Annotated[int, Field(strict=True, ge=1, le=100_000)] = GLOBAL_MAX
    blocks_in_a_row: Annotated[int, Field(strict=True, ge=1, le=MOST_BLOCKS)] = MAX_BLOCKS_IN_A_ROW
    stale_s: Annotated[float, Field(strict=True, ge=LEAST_STALE_TIMEOUT_S, le=24 * 3600)] = (
        STALE_TIMEOUT_S
    )


class StopReport(_Report):
    """One stop of an agent: it asks whether to run the gates, or brings their results."""

    #: The hook's own name for this stop: repeated with the same one it gets the same decision.
    stop: Annotated[str, Field(pattern=patterns.AGENT_SESSION)]
    #: The user's prompt that the agent works on. Claude Code gives all its stops the same one.
    prompt_id: Annotated[str, Field(max_length=128)] | None = None
    #: Whether no stop of this prompt was blocked before, as the agent sees it.
    is_first: StrictBool = False
    limits: GuardLimits = GuardLimits()
    #: Null: may the gates run? Otherwise the results of those that ran, in order.
    gates: Annotated[tuple[GateResult, ...], Field(max_length=MAX_GATES)] | None = None
    #: A team's own guidance by name; by default the built-in texts.
    templates: dict[GateName, Text] = Field(default_factory=dict, max_length=100)
    #: Why the stop is allowed without gates: it is recorded.
    unchecked: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    #: What happened while the API was away, to be recorded now.
    missed: Annotated[tuple[Annotated[str, Field(max_length=500)], ...], Field(max_length=50)] = ()

    @model_validator(mode="after")
    def _names_differ(self) -> StopReport:
        names = [gate.name for gate in self.gates or ()]
        if len(set(names)) < len(names):
            raise ValueError("gates have the same name; each gate has one result")
        return self


class AgentEvent(_Report):
    """An event of an agent that ends a row of blocks."""

    #: prompt: the user has sent one; idle: it waits for the user; end: its session has ended.
    event: Literal["prompt", "idle", "end"]
    prompt_id: Annotated[str, Field(max_length=128)] | None = None
