"""Describes a single loop: its task's first line, its doer and its checkers (pure)."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import JsonValue

from app.domain.program import Action, Loop, Program, Step
from app.domain.references import substitute
from app.redaction import redact_command, without_keys
from leadhand.models.text import headline, plain

#: Maximum characters of a task's first line and of a doer.
_TASK, _DOER = 200, 200


class AboutLoop(NamedTuple):
    """The description of a session of one loop; empty for flows and workflows."""

    task: str | None = None
    doer: str | None = None
    checkers: tuple[str, ...] = ()


def about_loop(kind: str, program: Program | None) -> AboutLoop:
    """Returns a `loop` session's task (first line), doer and checkers; empty for other kinds."""
    if program is None or kind != "loop":
        return AboutLoop()
    # Beside it are the steps that make and keep the session's own folder.
    loop = next((node for node in program.body if isinstance(node, Loop)), None)
    if loop is None:
        return AboutLoop()
    steps = [node for node in loop.body if isinstance(node, Step)]
    checkers = [step.label or step.id for step in steps if step.action is Action.CHECK]
    do = next((step for step in steps if step.id == "do"), None)
    inputs = {} if do is None else do.inputs
    return AboutLoop(
        task=_first_line(inputs.get("task")),
        doer=_doer(inputs.get("doer")) if do is not None else None,
        checkers=tuple(without_keys(name) for name in checkers),
    )


def _first_line(task: JsonValue) -> str | None:
    text = substitute(task, lambda _: None)
    return headline(without_keys(text), most=_TASK) or None if isinstance(text, str) else None


def _doer(doer: JsonValue) -> str:
    """A doer as text.

    >>> _doer({"agent": "claude"}), _doer({"command": "make it"}), _doer(None)
    ('agent claude', 'command make it', 'the default agent')
    """
    for kind, value in doer.items() if isinstance(doer, dict) else ():
        if kind in ("agent", "command", "callable") and isinstance(value, str):
            text = substitute(value, lambda _: None)
            return plain(f"{kind} {redact_command(str(text))}", most=_DOER)
    return "the default agent"
