"""The models of Stop guards that hooks send: a stop with its gates, and an event of an agent."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StrictBool, model_validator

from leadhand.models import patterns
from leadhand.models.documents import Document

#: Failing stops of an agent session after which a guard gives up; failures of one gate in a row.
GLOBAL_MAX, STAGE_MAX = 15, 5
#: Seconds after which a hook that has not answered is taken for dead, and the least of them.
STALE_TIMEOUT_S, LEAST_STALE_TIMEOUT_S = 300.0, 60.0
#: Blocks in a row that are safe: Claude Code overrides the ninth without a word.
MAX_BLOCKS_IN_A_ROW = 7
#: The most blocks in a row that a limit may allow.
MOST_BLOCKS = 100_000
#: The characters of a gate's output that guidance shows, and those of a gate at its limit.
OUTPUT, OUTPUT_WHEN_STUCK = 2000, 1000
#: The gates of one stop.
MAX_GATES = 50

AgentSession = Annotated[str, Field(pattern=patterns.AGENT_SESSION)]
#: A gate is named like a template: `fix-NAME` and `NAME-stuck` are its own.
GateName = Annotated[str, Field(pattern=patterns.GATE)]
Text = Annotated[str, Field(max_length=20_000)]
Outcome = Literal["passed", "failed", "skipped", "unfinished"]


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
