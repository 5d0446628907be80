"""Forms at the command line: shown as lines, and filled in from `NAME=VALUE` or by prompts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

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
from leadhand.models.text import plain
from leadhand.models.views.explain import QuestionView

_TRUE, _FALSE = ("true", "yes", "y", "on"), ("false", "no", "n", "off")


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
