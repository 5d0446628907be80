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


class Control(NamedTuple):
    """A button that does something to a session."""

    verb: str
    label: str
    #: The question that is asked first; empty for none.
    confirm: str = ""
    #: The label of the text that a person enters; empty for none.
    entry: str = ""
    #: The text that is there already.
    known: str = ""
    #: The field of that text in the body of the operation.
    field: str = "reason"


def controls_of(view: SessionView) -> list[Control]:
    """Returns the buttons of a session's page (stop, resume, delete ...) that its status allows."""
    name = f"session {view.id}"
    stop = Control("stop", "Stop")
    leave = Control("exit", "Exit…", "", "Why does it exit?")
    abort = Control(
        "abort", "Abort",
        f"Abort {name}? Its running steps are killed, and it cannot be resumed.",
    )  # fmt: skip
    resume = Control("resume", "Resume")
    rename = Control(
        "rename", "Rename…", "", "Which title should lists show?", view.renamed or "", "title"
    )
    note = Control(
        "note", "Note…", "", "A note for people; empty for none", view.note or "", "note"
    )
    archive = Control(*(("restore", "Restore") if view.archived else ("archive", "Archive")))
    delete = Control("delete", "Delete", f"Delete {name} with all its records?")
    match view.status:
        case "active" | "waiting":
            return [stop, leave, abort, rename, note]
        case "stopped" | "failed":
            return [resume, abort, rename, note, archive, delete]
        case "stopping":
            return [abort]
        case "completed" | "exited" | "aborted":
            return [rename, note, archive, delete]
        case _:
            return []


def row_buttons(view: SessionView) -> list[Control]:
    """Returns the rename, archive, restore and delete buttons that a session's status allows."""
    tidies = ("rename", "archive", "restore", "delete")
    return [one for one in controls_of(view) if one.verb in tidies]
