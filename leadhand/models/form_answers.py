"""Checks whether a person's answer fits its question (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from leadhand.models.forms import (
    ANSWER_MAX,
    AnswerRules,
    GivenAnswer,
    Group,
    Leaf,
    check_value,
    default_of,
    expected,
    quoted,
)
from leadhand.models.suggestions import listed, nearest


class Unfit(NamedTuple):
    """A part of an answer that does not fit: its path, what is wrong, and what to do."""

    field: str
    message: str
    hint: str
    #: None if it is missing.
    value: JsonValue = None


class Accepted(NamedTuple):
    """An answer that fits: as text for a reader, and as a value for references."""

    text: str
    value: dict[str, JsonValue] | None


def fit(rules: AnswerRules, given: GivenAnswer) -> Accepted | list[Unfit]:
    """Validates a person's answer by a question's rules; returns it with defaults, or all errors.

    >>> rules = AnswerRules(choices=("ship", "wait"))
    >>> fit(rules, GivenAnswer(text="ship"))
    Accepted(text='ship', value={'choice': 'ship'})
    >>> fit(rules, GivenAnswer(choice="stop"))[0].hint
    "give one of 'ship', 'wait'"
    """
    if rules.form is None and rules.choices is None:
        return _fit_text(given)
    value: dict[str, JsonValue] = {}
    unfit = [*_fit_choice(rules, given, value), *_fit_fields(rules, given, value)]
    if unfit:
        return unfit
    lines = [str(value["choice"])] if "choice" in value else []
    fields = value.get("fields")
    if isinstance(fields, dict):
        lines += _lines(fields)
    return Accepted("\n".join(lines), value)


def _fit_text(given: GivenAnswer) -> Accepted | list[Unfit]:
    surplus: list[Unfit] = []
    if given.choice is not None:
        hint = "leave it out, and give text"
        surplus.append(Unfit("choice", "the question has no choices", hint, given.choice))
    if given.fields is not None:
        hint = "leave them out, and give text"
        surplus.append(Unfit("fields", "the question has no form", hint, given.fields))
    if surplus:
        return surplus
    if given.text is None:
        return [Unfit("text", "it is missing", "give the answer")]
    return Accepted(given.text, None)


def _fit_choice(
    rules: AnswerRules, given: GivenAnswer, value: dict[str, JsonValue]
) -> Iterator[Unfit]:
    """Puts the choice into `value`; a text is the choice of a question that has choices."""
    if rules.choices is None:
        if given.choice is not None:
            hint = "leave it out"
            yield Unfit("choice", "the question has no choices", hint, given.choice)
        if given.text is not None:
            yield Unfit("text", "the question has a form", "give its fields", given.text)
        return
    if given.text is not None and given.choice is not None:
        yield Unfit("text", "the question has choices", "leave it out", given.text)
        return
    name = "text" if given.choice is None and given.text is not None else "choice"
    choice = given.text.strip() if given.text is not None else given.choice
    if choice is None:
        yield Unfit(name, "it is missing", _one_of(rules.choices))
    elif choice not in rules.choices:
        yield _not_an_option(name, choice, rules.choices)
    else:
        value["choice"] = choice


def _fit_fields(
    rules: AnswerRules, given: GivenAnswer, value: dict[str, JsonValue]
) -> Iterator[Unfit]:
    if rules.form is None:
        if given.fields is not None:
            yield Unfit("fields", "the question has no form", "leave them out", given.fields)
        return
    fields = given.fields or {}
    if len(json.dumps(fields)) > ANSWER_MAX:
        yield Unfit("fields", "they are too long", f"give {ANSWER_MAX} characters at most", fields)
        return
    found: dict[str, JsonValue] = {}
    yield from _fit_group(rules.form, fields, "fields", found)
    value["fields"] = found


def _fit_group(
    group: Group, given: Mapping[str, JsonValue], path: str, found: dict[str, JsonValue]
) -> Iterator[Unfit]:
    """Puts the values of a group into `found`, with defaults for those that are missing."""
    yield from _unknown_fields(group, given, path)
    for name, field in group.properties.items():
        value, where = given.get(name), f"{path}.{name}"
        if isinstance(field, Group):
            yield from _fit_inner(field, name in group.required, value, where, name, found)
            continue
        value = default_of(field) if value is None else value
        if value is not None:
            found[name], message = check_value(field, value)
            if message is not None:
                yield Unfit(where, message, _hint(field), value)
        elif name in group.required:
            yield Unfit(where, "it is missing", _hint(field))


def _unknown_fields(group: Group, given: Mapping[str, JsonValue], path: str) -> Iterator[Unfit]:
    for name, value in given.items():
        if name not in group.properties:
            near = nearest(name, group.properties)
            hint = f"did you mean {near}?" if near else f"give {listed(group.properties)}"
            yield Unfit(f"{path}.{name}", "the form has no such field", hint, value)


def _fit_inner(
    group: Group, required: bool, value: JsonValue, path: str, name: str,
    found: dict[str, JsonValue],
) -> Iterator[Unfit]:  # fmt: skip
    """Puts a group within a group into `found`; an optional one may be left out."""
    if value is not None and not isinstance(value, dict):
        yield Unfit(path, "it is no object", "give its fields", value)
        return
    inner: dict[str, JsonValue] = {}
    unfit = list(_fit_group(group, value or {}, path, inner))
    if value is None and not required and (unfit or not inner):
        return
    yield from unfit
    found[name] = inner


def _lines(fields: Mapping[str, JsonValue], path: str = "") -> Iterator[str]:
    """Yields one line for each value, `name: value`."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{path}{name}.")
        elif isinstance(value, list):
            yield f"{path}{name}: {', '.join(map(str, value))}"
        else:
            yield f"{path}{name}: {value if isinstance(value, str) else json.dumps(value)}"


def _hint(field: Leaf) -> str:
    return f"give {expected(field)}"


def _not_an_option(name: str, value: str, options: Sequence[str]) -> Unfit:
    near = nearest(value, options)
    hint = f"did you mean {near!r}?" if near is not None else _one_of(options)
    return Unfit(name, "it is none of the choices", hint, value)


def _one_of(options: Sequence[str]) -> str:
    return f"give one of {quoted(options)}"
