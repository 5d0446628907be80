"""Forms of questions to people: which fields they have, and which value fits each (pure).

A form is a JSON Schema of an object. Its fields are texts, choices (a text with an `enum`),
numbers, checkboxes, lists of choices, and groups of fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic.alias_generators import to_camel

from leadhand.models.json_schema import Judge, TooLarge, whole
from leadhand.models.suggestions import listed, nearest

#: The most fields of a form, and the most groups that enclose one another.
MAX_FIELDS, MAX_DEPTH = 100, 3
#: The most characters of a text field, unless it says otherwise, and of all values as JSON.
TEXT_MAX, ANSWER_MAX = 20_000, 200_000
Label = Annotated[str, Field(min_length=1, max_length=200)]
Option = Annotated[str, Field(min_length=1, max_length=200)]
Options = Annotated[tuple[Option, ...], Field(min_length=1, max_length=200)]
FieldName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]
Count = Annotated[int, Field(strict=True, ge=0, le=ANSWER_MAX)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Part(BaseModel):
    """Frozen; keywords that forms do not have are errors; names are those of JSON Schema."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
    )


class _Input(_Part):
    title: Label | None = None
    description: Annotated[str, Field(max_length=2_000)] | None = None


class TextField(_Input):
    """A text, or with `enum` a choice of one of them."""

    type: Literal["string"]
    enum: Options | None = None
    #: `multiline` asks for a text of several lines.
    format: Literal["multiline"] | None = None
    min_length: Count | None = None
    max_length: Count | None = None
    default: str | None = None


class NumberField(_Input):
    """A number; with both bounds it may be shown as a slider."""

    type: Literal["number", "integer"]
    minimum: Number | None = None
    maximum: Number | None = None
    multiple_of: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    default: Number | None = None


class Checkbox(_Input):
    type: Literal["boolean"]
    default: bool | None = None


class _Items(_Part):
    type: Literal["string"] = "string"
    enum: Options


class Multiselect(_Input):
    """Some of several options, each at most once."""

    type: Literal["array"]
    items: _Items
    unique_items: Literal[True] = True
    min_items: Count | None = None
    max_items: Count | None = None
    default: tuple[str, ...] | None = None


class Group(_Input):
    """Fields that belong together; a form is one, too."""

    type: Literal["object"]
    properties: Annotated[dict[FieldName, FormField], Field(min_length=1, max_length=MAX_FIELDS)]
    required: tuple[str, ...] = ()
    additional_properties: Literal[False] = False


FormField = Annotated[
    TextField | NumberField | Checkbox | Multiselect | Group, Field(discriminator="type")
]
Group.model_rebuild()


class Form(Group):
    """A form: a JSON Schema of type `object`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        count = 0
        for path, depth, field in _walk(self, "", 1):
            count += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"{path} is in more than {MAX_DEPTH} groups; use fewer")
            if isinstance(field, Group):
                _check_required(field, path)
            elif field.default is not None:
                _check_default(field, path)
        _check_required(self, "the form")
        if count > MAX_FIELDS:
            raise ValueError(f"it has {count} fields; the most are {MAX_FIELDS}")
        return self


class GivenAnswer(_Part):
    """An answer: a text, a choice, the fields of a form, or a choice and fields."""

    text: Annotated[str, Field(min_length=1, max_length=ANSWER_MAX)] | None = None
    choice: Option | None = None
    fields: dict[str, JsonValue] | None = None


class AnswerRules(_Part):
    """What a question accepts as its answer; without a form and choices any text."""

    form: Form | None = None
    #: The answer is one of these, with the fields of the form if there is one.
    choices: Options | None = None
    #: The answer at the deadline; without one the step fails then.
    default: GivenAnswer | None = None


#: A question that any text answers.
FREE_TEXT = AnswerRules()


Leaf = TextField | NumberField | Checkbox | Multiselect


def parse_rules(text: object) -> AnswerRules:
    """Parses which answers a stored question accepts; by default any text."""
    return AnswerRules.model_validate_json(text) if isinstance(text, str) else FREE_TEXT


def default_of(field: Leaf) -> JsonValue:
    """Returns the default value of a form field; None if it has none."""
    return list(field.default) if isinstance(field.default, tuple) else field.default


def check_value(field: Leaf, value: JsonValue) -> tuple[JsonValue, str | None]:
    """Validates a value of a form field; returns it as it is stored, and an error text or None.

    >>> check_value(NumberField(type="integer", maximum=5), 7.0)
    (7, 'it should be less than or equal to 5')
    """
    schema = field.model_dump(mode="json", exclude_none=True)
    if isinstance(field, TextField):
        schema.setdefault("maxLength", TEXT_MAX)
    if isinstance(value, int | float) and not _is_finite(value):
        return value, "it should be a finite number"
    if schema["type"] == "integer":
        value = whole(value)
    try:
        found = Judge().misfits(schema, value, most=1)
    except TooLarge:
        return value, "it is too large"
    return value, str(found[0]) if found else None


def _is_finite(value: float) -> bool:
    """Whether a number can be compared as a float.

    >>> _is_finite(1), _is_finite(float("nan")), _is_finite(10**400)
    (True, False, False)
    """
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def expected(field: FormField) -> str:
    """Describes in a few words what a form field accepts.

    >>> expected(NumberField(type="integer", minimum=1, maximum=5))
    'a whole number from 1 to 5'
    """
    match field:
        case TextField(enum=None):
            return _bounded("a text", field.min_length, field.max_length, "characters")
        case TextField():
            return f"one of {quoted(field.enum or ())}"
        case NumberField():
            what = "a whole number" if field.type == "integer" else "a number"
            step = "" if field.multiple_of is None else f", a multiple of {field.multiple_of:g}"
            return _bounded(what, field.minimum, field.maximum, "") + step
        case Checkbox():
            return "true or false"
        case Multiselect():
            count = _bounded("", field.min_items, field.max_items, "").strip()
            return f"a list of {quoted(field.items.enum)}" + (f", {count} of them" * bool(count))
        case Group():
            return "a group of fields"


def _bounded(what: str, low: float | None, high: float | None, unit: str) -> str:
    if low is None and high is None:
        return what
    if high is None:
        bounds = f"from {low:g}"
    else:
        bounds = f"up to {high:g}" if low is None else f"from {low:g} to {high:g}"
    return f"{what} {'of ' * bool(unit)}{bounds} {unit}".strip()


def leaves(group: Group, path: str = "") -> Iterator[tuple[str, bool, Leaf]]:
    """Yields the single fields of a form: path, whether required, and field."""
    for name, field in group.properties.items():
        if isinstance(field, Group):
            yield from leaves(field, f"{path}{name}.")
        else:
            yield f"{path}{name}", name in group.required, field


def _walk(group: Group, path: str, depth: int) -> Iterator[tuple[str, int, FormField]]:
    for name, field in group.properties.items():
        yield f"{path}{name}", depth, field
        if isinstance(field, Group):
            yield from _walk(field, f"{path}{name}.", depth + 1)


def _check_required(group: Group, path: str) -> None:
    for name in group.required:
        if name not in group.properties:
            raise ValueError(f"{path} requires {name!r}, which is none of its properties")


def _check_default(field: Leaf, path: str) -> None:
    _, message = check_value(field, default_of(field))
    if message is not None:
        raise ValueError(f"the default of {path} does not fit: {message}; give {expected(field)}")


def quoted(options: Sequence[str]) -> str:
    """Formats options as one text: each in quotes, separated by commas."""
    return ", ".join(repr(one) for one in options)


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
