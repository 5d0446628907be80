"""The buttons that a session has, by its status."""

from __future__ import annotations

from typing import NamedTuple

from leadhand.models.views.session import SessionView


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
