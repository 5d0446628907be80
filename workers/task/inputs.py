"""The inputs of judge, break and tool steps; those of prompts are in `workers.prompts.inputs`."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from app.domain.outcomes import Outcome
from leadhand.models.documents import Rule


def as_text(value: object) -> object:
    """Converts a value to text: '' for None, JSON for anything but text."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _known_fields(value: object) -> object:
    """An outcome without the fields that only a newer worker knows."""
    if not isinstance(value, dict) or "word" not in value:
        return None
    return {name: item for name, item in value.items() if name in Outcome.model_fields}


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


#: Text, or the value of a reference converted to text.
Text = Annotated[str, BeforeValidator(as_text)]


class Inputs(BaseModel):
    """Frozen; ignores fields that only a newer worker knows."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Check(BaseModel):
    """One checker and its outcome; None if all of its attempts were lost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    outcome: Outcome | None = None


#: The first line of the feedback of an iteration whose work no checker refused.
NOT_JUDGED = "The check ended before it judged the work: this is no verdict on the work."


#: What decided on a checker's verdict if its answer was none.
UNCLEAR: Literal["none"] = "none"


class _LenientCheck(Check):
    outcome: Annotated[Outcome | None, BeforeValidator(_known_fields)] = None


class _Decided(Inputs):
    name: str
    decided_by: str | None = None


class _Judged(Inputs):
    checks: tuple[_Decided, ...] = ()


class JudgeInputs(Inputs):
    """The checks of an iteration, and the rule that combines their verdicts."""

    rule: Rule = "all"
    checks: tuple[_LenientCheck, ...]
    #: The checks of the previous iteration.
    before: _Judged | None = None

    @property
    def unclear_before(self) -> frozenset[str]:
        """The names of the checkers whose last answer was no verdict."""
        checks = self.before.checks if self.before is not None else ()
        return frozenset(one.name for one in checks if one.decided_by == UNCLEAR)


class BreakInputs(Inputs):
    """The inputs of a break or decide step: a question, a script, a command or a ready answer."""

    #: Asked of the agent (by default the default agent), which answers yes or no.
    question: Text = ""
    agent: str | None = None
    model: str | None = None
    #: Prints ``{"answer": "yes"}`` or ``{"answer": "no"}`` and nothing else.
    script: str | None = None
    #: Exit code 0 means that the condition holds; any other, that it does not.
    command: str | None = None
    answer: Text = ""
    #: The answer that ends the loop or makes the condition hold.
    break_on: Annotated[Literal["yes", "no"], BeforeValidator(_lower)] = "yes"


class ToolInputs(Inputs):
    """The inputs of a tool step."""

    tool: str
    #: Whether the function takes milliseconds and may share a process with other calls.
    quick: bool = False
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    #: What the result must say, so that the call counts as successful.
    expect: Literal["success"] | None = None
