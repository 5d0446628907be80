"""Decides which actions a page offers for a step, a suggestion and a session (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from leadhand.models.views.explain import SuggestedAction
from leadhand.models.views.session import SessionView
from leadhand.models.views.step import StepView

#: Statuses of a session that can be resumed.
RESTS = frozenset({"stopped", "failed"})
#: Statuses in which a session is at work, and cannot be forked.
_AT_WORK = frozenset({"active", "waiting", "stopping", "exiting", "aborting"})
_LABELS = {"retry": "Run again", "skip": "Skip", "resume": "Resume", "rerun": "Rerun",
           "fork": "Fork"}  # fmt: skip
_MAY_SUBMIT = frozenset({"fork", "rerun"})


class Button(NamedTuple):
    """A form that consists of a button."""

    verb: str
    label: str
    #: Names and values of hidden fields.
    fields: Mapping[str, str]
    #: A text that the reader is asked for, under the name `reason`.
    entry: str = ""


def step_buttons(view: SessionView, step: StepView) -> Iterator[Button]:
    """Yields the buttons (run again, resume, skip) that a step's and its session's states allow."""
    rests = view.status in RESTS
    ended = step.state in ("failed", "cancelled")
    if rests and (ended or step.state == "succeeded"):
        yield Button("retry", "Run again", {"step": step.address})
    if rests and step.state == "succeeded":
        yield Button("resume", "Resume after", {"after": step.address})
    open_ = step.state in ("ready", "parked") and (rests or view.status in ("active", "waiting"))
    if step.action != "judge" and (open_ or (rests and ended)):
        yield Button("skip", "Skip", {"step": step.address}, f"Why is {step.label} skipped?")


def can_fork(view: SessionView) -> bool:
    """Whether a new session can continue from a step of this one."""
    return view.status not in _AT_WORK and view.kind not in ("plan", "guard")


def can_rerun(view: SessionView) -> bool:
    """Whether the session's document can be submitted again."""
    return view.kind != "guard"


def suggested(action: SuggestedAction, *, control: bool, submit: bool) -> Button | None:
    """Returns the button for a suggested action; None if the reader's token lacks its scope.

    There is none for an action with an input, whose value the reader must change first.
    """
    if "inputs" in action.arguments or not (submit if action.verb in _MAY_SUBMIT else control):
        return None
    fields = dict(_flat(action.arguments))
    if action.address is not None:
        fields["step"] = action.address
    return Button(action.verb, _LABELS.get(action.verb, action.verb), fields)


def _flat(arguments: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """The fields of a form for arguments of a call: those of a group have its name.

    >>> dict(_flat({"max_iterations": 6, "budget": {"steps": 9}}))
    {'max_iterations': '6', 'budget.steps': '9'}
    """
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", str(one)) for key, one in value.items())
        elif value is not None:
            yield name, str(value)
