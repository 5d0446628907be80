"""Refines a draft with a person at the terminal: shows it, and carries out what is typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TextIO

import click

from leadhand.cli.plan_editing import conflict_lines, done_line, edit_in_editor, message_of, send
from leadhand.cli.render.plan_text import draft_lines, numbered_task
from leadhand.client.client import Client
from leadhand.errors import AnswerUnwanted, LeadhandError, PlanChanged
from leadhand.models.plans import DropTask
from leadhand.models.views.plan import PlanView

PROMPT = "approve, change TEXT, edit, drop N, show, or an empty line to decide later: "
_CLOSED = "the draft is no longer open: it was decided elsewhere, or its deadline passed"

#: Reads a line; None once the question is closed or the command has ended.
ReadLine = Callable[[], str | None]


class Refinement:
    """The conversation about one draft."""

    def __init__(
        self, client: Client, session: str, *, terminal: TextIO, read_line: ReadLine
    ) -> None:
        self._client = client
        self._session = session
        self._terminal = terminal
        self._read_line = read_line
        self._plan: PlanView | None = None

    def run(self) -> None:
        """Show a plan's draft and let a person edit it until it is approved or left open."""
        self._show()
        while True:
            click.echo(PROMPT, file=self._terminal, nl=False)
            line = self._read_line()
            if line is None:
                self._say("", _CLOSED)
                return
            if not line.strip():
                self._say(f"decide later with: leadhand plan show {self._session}")
                return
            try:
                if self._carry_out(line):
                    return
            except AnswerUnwanted:
                self._say(_CLOSED)
                return
            except (LeadhandError, click.ClickException) as error:
                self._say(message_of(error))

    def _carry_out(self, line: str) -> bool:
        """Carry out a typed line; returns whether the draft is decided."""
        verb, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        match verb.lower():
            case "approve" | "a" if not rest:
                return self._approve()
            case "change" | "c" if rest:
                self._client.change_plan(self._session, rest)
                self._say("the team lead changes its draft")
                return True
            case "edit" | "e" if not rest:
                self._edit()
            case "drop" | "d" if rest:
                self._drop(rest)
            case "show" | "s" if not rest:
                self._show()
            case _:
                self._say(
                    f"{line.strip()[:60]!r} is not understood; type approve, edit or show alone,"
                    " change with what to change, or drop with a task's number"
                )
        return False

    def _approve(self) -> bool:
        """Approve the draft as it was shown; shows it again if it has changed since."""
        shown = self._plan
        try:
            self._client.approve_plan(self._session, seen=shown)
        except PlanChanged as error:
            lines = conflict_lines(shown, error) if shown is not None else []
            self._say("not approved, the plan has changed meanwhile:", *lines)
            self._show()
            return False
        self._say("approved")
        return True

    def _edit(self) -> None:
        edited = edit_in_editor(self._client, self._session, edit_again=self._edit_again)
        self._say(*edited.meanwhile)
        self._plan = edited.plan
        self._say(done_line(edited))
        self._show_plan(edited.plan)

    def _edit_again(self, why: str) -> bool:
        self._say(why)
        click.echo("edit it again? (yes or no): ", file=self._terminal, nl=False)
        return (self._read_line() or "").strip().lower() in ("y", "yes")

    def _drop(self, given: str) -> None:
        plan = self._plan or self._client.plan(self._session)
        task = numbered_task(plan, given)
        if task is None:
            self._say(f"the draft has no task {given!r}; give the number or id of one")
            return
        try:
            now, meanwhile = send(self._client, plan, [DropTask(id=task)])
        except PlanChanged as error:
            self._say("the plan has changed meanwhile:", *conflict_lines(plan, error))
            self._show()
            return
        self._say(*meanwhile, f"task {task} is dropped")
        self._show_plan(now)

    def _show(self) -> None:
        self._show_plan(self._client.plan(self._session))

    def _show_plan(self, plan: PlanView) -> None:
        self._plan = plan
        self._say(*draft_lines(plan))

    def _say(self, *lines: str) -> None:
        _echo(lines, self._terminal)


def _echo(lines: Iterable[str], terminal: TextIO) -> None:
    for line in lines:
        click.echo(line, file=terminal)
