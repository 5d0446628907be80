"""What each kind of step is given, as its body reads it."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from app.outcomes import Gate, Outcome
from app.verdicts import Check
from leadhand.documents import Checker, Doer, Rule


def _as_text(value: object) -> object:
    """A reference may have resolved to nothing, or to more than text."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _known_fields(value: object) -> object:
    """An outcome that a newer worker wrote may say more than this one knows."""
    if not isinstance(value, dict) or "word" not in value:
        return None
    return {name: item for name, item in value.items() if name in Outcome.model_fields}


def _something(value: object) -> object:
    """In the first iteration the references to the one before it have all resolved to nothing.

    >>> _something({"work": None, "feedback": None}) is None
    True
    """
    is_nothing = isinstance(value, dict) and all(item is None for item in value.values())
    return None if is_nothing else value


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


Told = Annotated[str, BeforeValidator(_as_text)]


class Inputs(BaseModel):
    """Frozen; a field that this worker does not know is left to those who do."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Previous(Inputs):
    """The iteration before, which was refused."""

    work: Told = ""
    feedback: Told = ""


class Prior(Inputs):
    """What an earlier phase came to."""

    name: str
    verdict: str | None = None
    text: Told = ""


class DoerInputs(Inputs):
    task: Told
    doer: Doer | None = None
    model: str | None = None
    phase: str | None = None
    iteration: int = 1
    max_iterations: int | None = None
    #: How many of the last iterations came to the same, and how many of them are to be told of.
    unchanged: Annotated[int, BeforeValidator(lambda value: value or 0)] = 0
    no_progress: int = 0
    file_scope: tuple[str, ...] = ()
    verify: tuple[str, ...] = ()
    previous: Annotated[Previous | None, BeforeValidator(_something)] = None
    prior: tuple[Prior, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _line_by_line(cls, value: object) -> object:
        """Where some of the task is what earlier steps came to, it is given as `lines`."""
        if not isinstance(value, dict) or not isinstance(value.get("lines"), list):
            return value
        return {**value, "task": "\n".join(str(_as_text(line)) for line in value["lines"])}


class PastIteration(Inputs):
    iteration: int
    verdict: str | None = None
    feedback: Told = ""


class CheckedBefore(Inputs):
    """A check of the iteration before, as far as a rubric wants to know of it."""

    name: str
    digest: str | None = None
    gates: Annotated[tuple[Gate, ...], BeforeValidator(lambda value: value or ())] = ()


class JudgedBefore(Inputs):
    checks: tuple[CheckedBefore, ...] = ()


class CheckInputs(Inputs):
    checker: Checker
    task: Told = ""
    work: Told = ""
    iteration: int = 1
    doer: Doer | None = None
    history: Annotated[tuple[PastIteration, ...], BeforeValidator(lambda value: value or ())] = ()
    #: Of a rubric: the folder's digest after the doer, and what the iteration before came to.
    digest: str | None = None
    judged: JudgedBefore | None = None


class _LenientCheck(Check):
    outcome: Annotated[Outcome | None, BeforeValidator(_known_fields)] = None


class JudgeInputs(Inputs):
    rule: Rule = "all"
    checks: tuple[_LenientCheck, ...]


class BreakInputs(Inputs):
    """One of: a question for an agent, a script, a command, an answer that is there already."""

    #: Asked of the agent (the default one where none is named), answered with yes or no.
    question: Told = ""
    agent: str | None = None
    model: str | None = None
    #: Prints ``{"answer": "yes"}`` or ``{"answer": "no"}`` and nothing else.
    script: str | None = None
    #: Makes it so with exit code 0, and not with any other.
    command: str | None = None
    answer: Told = ""
    #: The answer that makes it so: the loop ends, the condition holds.
    break_on: Annotated[Literal["yes", "no"], BeforeValidator(_lower)] = "yes"


class ToolInputs(Inputs):
    tool: str
    #: A function that takes milliseconds and may share its process with other calls.
    quick: bool = False
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
