"""The inputs of doers and checkers, from which their prompts are made.

`app.compiler` writes them into the program, as literals and references such as
`${previous.judge.text}`; `app.operations.inputs` resolves the references when the step starts.
`workers.prompts.build` turns them into text.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, model_validator

from app.domain.outcomes import Baseline
from leadhand.models.documents import Checker, Doer, Protected, Quarantined
from workers.folders.protected import Answered, Protection
from workers.task.inputs import NOT_JUDGED, Inputs, Text, as_text


def _none_if_all_none(value: object) -> object:
    """None for an object whose fields are all None, as references resolve in the first iteration.

    >>> _none_if_all_none({"work": None, "feedback": None}) is None
    True
    """
    is_empty = isinstance(value, dict) and all(item is None for item in value.values())
    return None if is_empty else value


#: A number of an outcome; None for anything else that a doer returned under its name.
_Count = Annotated[
    int | None, BeforeValidator(lambda value: value if isinstance(value, int) else None)
]


class Previous(Inputs):
    """The previous iteration, which the judge rejected: the doer's text and the feedback."""

    work: Text = ""
    feedback: Text = ""
    #: The number of the doer's tool calls, if all of them failed.
    tools_failed: _Count = None

    @property
    def not_judged(self) -> bool:
        """Whether the work was not judged because all checkers that did not accept timed out."""
        return self.feedback.startswith(NOT_JUDGED)


class Prior(Inputs):
    """The result of an earlier phase."""

    name: str
    verdict: str | None = None
    text: Text = ""


class DoerInputs(Inputs):
    """The inputs of an agent step."""

    task: Text
    doer: Doer | None = None
    model: str | None = None
    phase: str | None = None
    iteration: int = 1
    max_iterations: int | None = None
    #: How many iterations in a row had the same result; `no_progress` is the limit of the loop.
    unchanged: Annotated[int, BeforeValidator(lambda value: value or 0)] = 0
    no_progress: int = 0
    file_scope: tuple[str, ...] = ()
    verify: tuple[str, ...] = ()
    previous: Annotated[Previous | None, BeforeValidator(_none_if_all_none)] = None
    prior: tuple[Prior, ...] = ()
    #: Whether it continues the conversation of the previous iteration.
    continues: bool = False

    @model_validator(mode="before")
    @classmethod
    def _join_lines(cls, value: object) -> object:
        """Join a task that contains references: the compiler writes it as `lines`.

        An agent that is called as a tool gets it as the argument `prompt`.
        """
        if isinstance(value, dict) and isinstance(value.get("arguments"), dict):
            given = value["arguments"]
            if not isinstance(given.get("prompt"), str):
                raise ValueError("an agent that is called as a tool needs the argument 'prompt'")
            return {**value, "task": given["prompt"], "model": given.get("model")}
        if not isinstance(value, dict) or not isinstance(value.get("lines"), list):
            return value
        return {**value, "task": "\n".join(str(as_text(line)) for line in value["lines"])}


class PastIteration(Inputs):
    """The verdict and feedback of an earlier iteration."""

    iteration: int
    verdict: str | None = None
    feedback: Text = ""


def _baseline_of(outcome: object) -> object:
    """The baseline in the outcome of its step; None if it was skipped or lost."""
    found = outcome.get("value") if isinstance(outcome, dict) else None
    return found if isinstance(found, dict) else None


class ProtectInputs(Inputs):
    """The inputs of the step before a loop that records its protected files."""

    protect: tuple[Protected, ...]


class LookInputs(Inputs):
    """The inputs of a step after a doer that asks a person about changed protected files."""

    protected: Protection
    look: Answered


class CheckInputs(Inputs):
    """The inputs of a check step."""

    checker: Checker
    #: Whether it runs before the first doer, as a baseline for the checks.
    is_baseline: bool = False
    #: Whether a later phase runs it before its work, so that how it ends is kept for that.
    keeps: bool = False
    quarantine: tuple[Quarantined, ...] = ()
    #: How the command ended before the first doer.
    base: Annotated[Baseline | None, BeforeValidator(_baseline_of)] = None
    task: Text = ""
    work: Text = ""
    #: The number of the doer's tool calls, if all of them failed.
    tools_failed: _Count = None
    iteration: int = 1
    doer: Doer | None = None
    phase: str | None = None
    #: The doer's model, for an agent that the checker names without a model and that takes one.
    doer_model: str | None = None
    history: Annotated[tuple[PastIteration, ...], BeforeValidator(lambda value: value or ())] = ()
    #: Of a rubric on merged work: only its gates run, and no agent is asked.
    gates_only: bool = False
