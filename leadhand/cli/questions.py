"""Shows questions and their forms, and reads answers: at a terminal, or from options."""

from __future__ import annotations

import json
import os
import select
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click

from leadhand.cli.connect import tell
from leadhand.cli.render.live import LiveScreen, PlainScreen
from leadhand.cli.render.times import clock_time
from leadhand.client.client import Client
from leadhand.errors import LeadhandError
from leadhand.models.forms import (
    Checkbox,
    Form,
    Leaf,
    Multiselect,
    NumberField,
    check_value,
    default_of,
    expected,
    leaves,
)
from leadhand.models.text import block, plain
from leadhand.models.views.explain import QuestionView

_TRUE, _FALSE = ("true", "yes", "y", "on"), ("false", "no", "n", "off")
#: The word of the waits that are shown as questions.
ASKED = frozenset({"human"})
#: Seconds before the first look at the open questions, and between two looks.
FIRST_S, EVERY_S = 0.5, 2.0
#: Seconds between two checks whether the command has ended.
_TICK_S = 0.2
_LINE_BYTES = 65_536


def form_of(view: QuestionView) -> Form | None:
    """Returns the form of a question; None if it has none."""
    return None if view.form is None else Form.model_validate(view.form)


def form_lines(view: QuestionView) -> Iterator[str]:
    """Yields lines on what answers a question accepts: choices, form fields, and the default."""
    if view.choices:
        yield f"choices: {', '.join(plain(one) for one in view.choices)}"
    form = form_of(view)
    for path, is_required, field in leaves(form) if form is not None else ():
        yield f"field {path}: {_about(field, is_required=is_required)}"
    if view.default is not None:
        given = view.default.get("choice") or view.default.get("text")
        fields = view.default.get("fields")
        parts = [plain(given)] if given else []
        parts += [plain(json.dumps(fields))] if fields else []
        yield f"without an answer: {', '.join(parts) or 'the defaults of the form'}"


def parse_fields(form: Form | None, pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Builds the nested fields of an answer from dotted names and texts, typed by the form.

    A field of several options may be repeated. What the form does not have is left for the API
    to refuse.

    >>> parse_fields(None, [("owner.name", "me"), ("count", "3")])
    {'owner': {'name': 'me'}, 'count': 3}
    """
    known = {path: field for path, _, field in leaves(form)} if form is not None else {}
    found: dict[str, Any] = {}
    for path, text in pairs:
        *groups, name = path.split(".")
        here = found
        for group in groups:
            if not isinstance(here.get(group), dict):
                here[group] = {}
            here = here[group]
        field = known.get(path)
        value = _guess(text) if form is None else read_value(field, text)
        here[name] = [*here[name], *value] if isinstance(here.get(name), list) else value
    return found


def read_value(field: Leaf | None, text: str) -> Any:
    """Converts a text to the type of a form field; returns the text if that is impossible.

    >>> read_value(Checkbox(type="boolean"), "Yes"), read_value(None, "7")
    (True, '7')
    >>> read_value(NumberField(type="integer"), "7"), read_value(NumberField(type="number"), "x")
    (7, 'x')
    """
    match field:
        case NumberField():
            return _number(text)
        case Checkbox():
            word = text.strip().lower()
            return True if word in _TRUE else False if word in _FALSE else text
        case Multiselect():
            whole = text in field.items.enum
            return [text] if whole else [one.strip() for one in text.split(",") if one.strip()]
        case _:
            return text


def fill_in(
    form: Form, *, read_line: Callable[[], str | None], say: Callable[[str], None]
) -> dict[str, Any] | None:
    """Prompts for each field of a form and returns the values; None if the user gives up.

    An empty line leaves a field out. At a field that must be given it leaves the prompts.
    """
    pairs: list[tuple[str, str]] = []
    for path, is_required, field in leaves(form):
        while True:
            say(f"{path}, {_about(field, is_required=is_required)}: ")
            text = read_line()
            if text is None:
                return None
            if not text.strip():
                if is_required and default_of(field) is None:
                    return None
                break
            _, message = check_value(field, read_value(field, text))
            if message is None:
                pairs.append((path, text))
                break
            say(f"  {message}; give {expected(field)}\n")
    return parse_fields(form, pairs)


def _about(field: Leaf, *, is_required: bool) -> str:
    title = f"{plain(field.title)}, " if field.title else ""
    default = default_of(field)
    if default is not None:
        text = default if isinstance(default, str) else json.dumps(default)
        return f"{title}{expected(field)} (default: {plain(text)})"
    return f"{title}{expected(field)} ({'required' if is_required else 'optional'})"


def _guess(text: str) -> Any:
    """A value of an unknown form: JSON, or else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@contextmanager
def answering_questions(
    client: Client,
    sessions: Sequence[str],
    *,
    screen: PlainScreen | LiveScreen | None = None,
    as_json: bool = False,
) -> Iterator[None]:
    """Within its `with` block, a thread shows the sessions' questions and reads typed answers.

    At a terminal an answer can be typed; anywhere else the command that answers is printed.
    """
    desk = _Desk(client, sessions, screen, _terminal(as_json=as_json))
    thread = threading.Thread(target=desk.run, name="questions", daemon=True)
    thread.start()
    try:
        yield
    finally:
        desk.over.set()
        thread.join(timeout=5 * _TICK_S)  # a prompt that is open ends its line


class _Desk:
    """Polls the open questions and shows each of them once."""

    def __init__(
        self,
        client: Client,
        sessions: Sequence[str],
        screen: PlainScreen | LiveScreen | None,
        terminal: TextIO | None,
    ) -> None:
        self.over = threading.Event()
        self._client = client
        self._sessions = sessions
        self._screen = screen
        self._terminal = terminal
        self._shown: set[tuple[str, str, str | None]] = set()

    def run(self) -> None:
        pause_s = FIRST_S
        while not self.over.wait(pause_s):
            pause_s = EVERY_S
            for view in self._open():
                if self.over.is_set():
                    return
                if _key(view) not in self._shown:
                    self._shown.add(_key(view))
                    self._show(view)

    def _open(self) -> list[QuestionView]:
        try:
            return [
                view
                for session in self._sessions
                for view in self._client.questions(session=session).items
            ]
        except LeadhandError:
            return []  # the caller, who waits for the session, gets the error

    def _show(self, view: QuestionView) -> None:
        if self._terminal is None or not _is_foreground():
            say = self._screen.say if isinstance(self._screen, PlainScreen) else tell
            for line in [*question_lines(view), *answer_lines(view)]:
                say(line)
            return
        live = self._screen if isinstance(self._screen, LiveScreen) else None
        if live is not None:
            live.pause()
        try:
            if view.about == "plan":
                self._refine(view, self._terminal)
            else:
                self._ask(view, self._terminal)
        finally:
            if live is not None:
                live.resume()

    def _refine(self, view: QuestionView, terminal: TextIO) -> None:
        """Show the draft of a plan at the terminal, and carry out what is typed about it."""
        from leadhand.cli.plan_refining import Refinement

        # Text that was typed before the draft was shown is no answer to it.
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        talk = Refinement(
            self._client,
            view.session,
            terminal=terminal,
            read_line=lambda: self._typed_line(view),
        )
        try:
            talk.run()
        except LeadhandError as error:
            click.echo(f"the draft cannot be shown: {error}", file=terminal)

    def _ask(self, view: QuestionView, terminal: TextIO) -> None:
        """Show the question at the terminal and give the typed answer."""
        for line in question_lines(view):
            click.echo(line, file=terminal)
        # Text that was typed before the question was shown is no answer to it.
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        text: str | None = None
        if view.choices or view.form is None:
            prompt = "choice" if view.choices else "answer"
            click.echo(f"{prompt} (an empty line answers later): ", file=terminal, nl=False)
            text = self._typed_line(view)
            if text is None or not text.strip():
                return self._leave_open(view, terminal, closed=text is None)
        fields = self._fill_in(view, terminal)
        if fields is None and view.form is not None:
            return self._leave_open(view, terminal, closed=not self._is_open(view))
        return click.echo(self._give(view, text, fields), file=terminal)

    def _fill_in(self, view: QuestionView, terminal: TextIO) -> dict[str, Any] | None:
        """The fields of the question's form as they are typed; None if they are not."""
        form = form_of(view)
        if form is None:
            return None
        click.echo("an empty line leaves a field out, and at a required one answers later",
                   file=terminal)  # fmt: skip
        return fill_in(
            form,
            read_line=lambda: self._typed_line(view),
            say=lambda text: click.echo(text, file=terminal, nl=False),
        )

    def _leave_open(self, view: QuestionView, terminal: TextIO, *, closed: bool) -> None:
        """Say how the question is answered later, or that it is closed."""
        if not closed:
            click.echo(f"answer it later with: {view.answer}", file=terminal)
        elif self.over.is_set():
            click.echo("", file=terminal)
        else:
            click.echo("\nthe question is closed: it was answered elsewhere, or its step ended",
                       file=terminal)  # fmt: skip

    def _give(self, view: QuestionView, text: str | None, fields: dict[str, Any] | None) -> str:
        """Give the answer; returns the line that says what became of it."""
        try:
            self._client.answer(view.session, text, view.address, fields=fields)
        except LeadhandError as error:
            return f"the answer was not taken: {error}"
        return "answered"

    def _typed_line(self, view: QuestionView) -> str | None:
        """The next line of standard input; None once the question or the command has ended."""
        typed, keyboard = b"", sys.stdin.fileno()
        next_look = time.monotonic() + EVERY_S
        while not self.over.is_set():
            if select.select([keyboard], [], [], _TICK_S)[0]:
                part = os.read(keyboard, _LINE_BYTES)
                typed += part
                if not part or typed.endswith(b"\n"):
                    return typed.decode(errors="replace").rstrip("\r\n")
            elif time.monotonic() > next_look:
                if not self._is_open(view):
                    return None
                next_look = time.monotonic() + EVERY_S
        return None

    def _is_open(self, view: QuestionView) -> bool:
        try:
            found = self._client.questions(session=view.session).items
        except LeadhandError:
            return True  # unknown; the answer itself will say so
        return _key(view) in map(_key, found)


def _key(view: QuestionView) -> tuple[str, str, str | None]:
    """Identifies a question; one that is asked again has another deadline."""
    return view.session, view.address, view.until


def answer_lines(view: QuestionView) -> Iterator[str]:
    """Formats the command that answers a question as a line; several lines for a plan's draft."""
    if view.about != "plan":
        yield f"answer with: {view.answer}"
        return
    yield f"approve the plan with: {view.answer}"
    yield f"see it with: leadhand plan show {view.session}"
    yield f"change it with: leadhand plan edit {view.session}"
    yield f"or let the team lead change it: leadhand plan change {view.session} TEXT"


def question_lines(view: QuestionView) -> Iterator[str]:
    """Formats a question, with the session and the step that ask it."""
    until = f" (until {clock_time(view.until)})" if view.until else ""
    yield f"question of session {view.session}, step {plain(view.address)}{until}:"
    yield from block(view.question, indent="  ")
    yield from (f"  {line}" for line in form_lines(view))


def _terminal(*, as_json: bool) -> TextIO | None:
    """The stream for a prompt, if standard input and an output are a terminal."""
    if not sys.stdin or sys.stdin.closed or not sys.stdin.isatty():
        return None
    streams = [sys.stderr] if as_json else [sys.stdout, sys.stderr]
    return next((stream for stream in streams if stream.isatty()), None)


def _is_foreground() -> bool:
    """Whether the command may read the terminal: a background job would be stopped by it."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        # A terminal that controls no session may be read by all.
        return True
