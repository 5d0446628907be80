"""Parses the `${references}` of graph documents, and fills them in (pure).

A reference is a path, such as `${search.papers[0].title}`, with an optional default in JSON:
`${fetch.text ?? "none"}`. Its first word is the name of a step, or `inputs`, `item` or `index`.
`${steps.NAME...}` and `${steps["any name"]...}` name a step whatever it is called. `$${` is a
literal `${`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import Literal, NamedTuple

from pydantic import JsonValue

#: First words that name no step, and have no meaning in graphs.
_RESERVED = ("previous", "history", "turn")

#: The most characters that all references of one value are replaced with.
FILLED_CHARACTERS = 4 * 1024 * 1024
#: The most references of a document, each of which is parsed several times.
MAX_REFERENCES = 20_000
#: The most characters of a step's name.
NAME_CHARACTERS = 120

# Begins at the first of several dollar signs and keeps all of them: a long row is read once.
_OPENING = re.compile(r"(?<!\$)(\$++)\{")
_ROOT = re.compile(r"[^\W\d][\w-]*")
_KEY = re.compile(r"[\w-]+")
_INDEX = re.compile(r"\[\s*(\d{1,9})\s*\]")
_SPACE = re.compile(r"\s*")


def _no_number(name: str) -> JsonValue:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
_DEFAULT = re.compile(r"\?\?")
#: Characters of a text in an error.
_SHOWN = 60


class ReferenceFault(ValueError):
    """A reference is malformed, or names nothing: its text, and what to write instead."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(text, why)
        self.text = text
        self.why = why

    def __str__(self) -> str:
        return f"{self.text}: {self.why}"


class Part(NamedTuple):
    """One part of a path; a part in brackets is never joined with the next one."""

    key: str
    in_brackets: bool = False


class Default(NamedTuple):
    value: JsonValue


class Reference(NamedTuple):
    """A parsed reference."""

    #: As it is written in the document.
    text: str
    parts: tuple[Part, ...]
    default: Default | None = None


class Target(NamedTuple):
    """What a reference is about."""

    kind: Literal["step", "input", "item", "index"]
    #: Of a step or an input.
    name: str
    keys: tuple[str, ...]


def parse(text: str) -> list[str | Reference]:
    """Splits a text into its literal parts and its `${...}` references. Raises ReferenceFault.

    >>> [part if isinstance(part, str) else part.parts for part in parse("a ${b.c} $${d}")]
    ['a ', (Part(key='b', in_brackets=False), Part(key='c', in_brackets=False)), ' ${d}']
    """
    found: list[str | Reference] = []
    literal, at = "", 0
    while (opening := _OPENING.search(text, at)) is not None:
        literal += text[at : opening.start()]
        at = opening.end()
        if len(opening[1]) > 1:
            literal += "$" * (len(opening[1]) - 1) + "{"
            continue
        reference, at = _Scanner(text, opening.start()).reference()
        found += [literal, reference] if literal else [reference]
        literal = ""
    literal += text[at:]
    return [*found, literal] if literal or not found else found


def bound_references(given: object) -> None:
    """Raises ValueError if a document has more references than are parsed; it parses none itself.

    Signs `${` that are kept as they are count, too.
    """
    count = json.dumps(given, default=str, ensure_ascii=False).count("${")
    if count > MAX_REFERENCES:
        raise ValueError(f"it has {count} references ${{...}}; give at most {MAX_REFERENCES}")


def whole(text: str) -> Reference | None:
    """Returns the `${...}` reference that is the entire text, or None. Raises ReferenceFault."""
    parts = parse(text)
    first = parts[0]
    return first if len(parts) == 1 and isinstance(first, Reference) else None


def parse_at(text: str, start: int) -> tuple[Reference, int]:
    """Parses the `${...}` reference at a position of a text; returns it and its end.

    Raises ReferenceFault.
    """
    return _Scanner(text, start).reference()


def escape(text: str) -> str:
    """Escapes `${` in a text with a `$`, so that it contains no references.

    >>> parse(escape("${HOME} and $${x}"))
    ['${HOME} and $${x}']
    """
    return _OPENING.sub(lambda found: "$" + found[0], text)


def escape_value(value: JsonValue) -> JsonValue:
    """Escapes `${` in all texts of a JSON value, at any depth, and returns the new value."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, list):
        return [escape_value(item) for item in value]
    if isinstance(value, dict):
        return {name: escape_value(item) for name, item in value.items()}
    return value


def step_reference(name: str, *keys: str | int) -> str:
    """Formats a reference to a step's result, or to a part of it.

    >>> step_reference("search", "papers", 0), step_reference("fetch papers")
    ('${steps.search.papers[0]}', '${steps["fetch papers"]}')
    """
    return "${" + _written("steps", name, *keys) + "}"


def _written(*parts: str | int) -> str:
    return "".join(map(_accessor, parts)).removeprefix(".")


def _accessor(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if _KEY.fullmatch(part) else f"[{json.dumps(part, ensure_ascii=False)}]"


def references_in(value: JsonValue) -> Iterator[Reference]:
    """Yields all references in a JSON value, at any depth. Raises ReferenceFault."""
    for _, text in texts_in(value):
        yield from (part for part in parse(text) if isinstance(part, Reference))


def texts_in(value: JsonValue, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields all texts in a JSON value, at any depth, each with its path.

    >>> list(texts_in({"a": ["x", {"b": "y"}]}, "arguments"))
    [('arguments.a[0]', 'x'), ('arguments.a[1].b', 'y')]
    """
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from texts_in(item, f"{path}[{number}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from texts_in(item, f"{path}.{name}".removeprefix("."))


def target_of(reference: Reference, names: Collection[str]) -> Target:
    """Returns what a reference refers to: a step, an input or an item. Raises ReferenceFault.

    >>> target_of(parse("${a.b.c}")[0], {"a", "a.b"})
    Target(kind='step', name='a.b', keys=('c',))
    """
    first, *rest = reference.parts
    match first.key:
        case "inputs":
            if not rest:
                raise ReferenceFault(reference.text, "name an input: ${inputs.NAME}")
            return Target("input", rest[0].key, _keys(rest[1:]))
        case "item":
            return Target("item", "", _keys(rest))
        case "index":
            if rest:
                raise ReferenceFault(reference.text, "${index} is a number and has no parts")
            return Target("index", "", ())
        case "steps":
            return _step(reference, tuple(rest), names)
        case word if word in _RESERVED:
            why = f"{word!r} is a reserved word; write ${{steps.{word}...}} for the step"
            raise ReferenceFault(reference.text, why)
        case _:
            return _step(reference, reference.parts, names)


def _step(reference: Reference, parts: tuple[Part, ...], names: Collection[str]) -> Target:
    if not parts:
        raise ReferenceFault(reference.text, "name a step: ${steps.NAME}")
    for end in range(_most_parts(parts), 0, -1):
        name = ".".join(part.key for part in parts[:end])
        if name in names:
            return Target("step", name, _keys(parts[end:]))
    raise ReferenceFault(reference.text, f"there is no step {parts[0].key!r}")


def _most_parts(parts: tuple[Part, ...]) -> int:
    """How many of the first parts a name may consist of."""
    length, ends = len(parts[0].key), 1
    while not parts[ends - 1].in_brackets and ends < len(parts) and not parts[ends].in_brackets:
        length += 1 + len(parts[ends].key)
        if length > NAME_CHARACTERS:
            break
        ends += 1
    return ends


def _keys(parts: tuple[Part, ...] | list[Part]) -> tuple[str, ...]:
    return tuple(part.key for part in parts)


class Held(NamedTuple):
    """The value of a step or an input, before the keys of a reference are followed."""

    value: JsonValue = None
    #: Whether the value is that of a failed step: `{"error": text}`.
    failed: bool = False
    #: Why there is no value; empty if there is one.
    missing: str = ""


def value_at(reference: Reference, target: Target, held: Held) -> JsonValue:
    """Returns the value of a reference, or its default. Raises ReferenceFault without either.

    The default replaces a missing value, null, and the value of a step that failed.

    >>> title = parse('${paper.title ?? "none"}')[0]
    >>> target = target_of(title, {"paper"})
    >>> [value_at(title, target, Held(value)) for value in ({"title": "A"}, {"title": None}, {})]
    ['A', 'none', 'none']
    """
    default, why = reference.default, held.missing
    asks_for_error = target.keys[:1] == ("error",)
    if default is not None and (why or (held.failed and not asks_for_error)):
        return default.value
    if why:
        raise ReferenceFault(reference.text, why)
    try:
        found = look_up(held.value, target.keys)
    except KeyError as error:
        if default is not None:
            return default.value
        raise ReferenceFault(reference.text, _why_missing(held, str(error.args[0]))) from None
    return default.value if found is None and default is not None else found


def _why_missing(held: Held, why: str) -> str:
    error = held.value.get("error") if held.failed and isinstance(held.value, dict) else None
    return why if error is None else f"the step failed: {as_text(error)}"


def fill(value: JsonValue, resolve: Callable[[Reference], JsonValue]) -> JsonValue:
    """Replaces all references in a JSON value by the values that `resolve` returns for them.

    Raises ReferenceFault if the result is too large.
    A text that is one reference becomes its value; within a text a value becomes text, anything
    but a text as JSON.

    >>> fill(["${a}", "got ${a}"], lambda _: [1, "x"])
    [[1, 'x'], 'got [1, "x"]']
    """
    return _Filling(resolve).fill(value)


class _Filling:
    """Fills in one JSON value, up to FILLED_CHARACTERS in all."""

    def __init__(self, resolve: Callable[[Reference], JsonValue]) -> None:
        self._resolve = resolve
        self._left = FILLED_CHARACTERS

    def fill(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self._filled(parse(value))
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if isinstance(value, dict):
            return {name: self.fill(item) for name, item in value.items()}
        return value

    def _filled(self, parts: list[str | Reference]) -> JsonValue:
        if len(parts) == 1 and isinstance(parts[0], Reference):
            return self._value(parts[0])[0]
        return "".join(part if isinstance(part, str) else self._value(part)[1] for part in parts)

    def _value(self, reference: Reference) -> tuple[JsonValue, str]:
        """The value of a reference, and its text."""
        value = self._resolve(reference)
        text = as_text(value)
        self._left -= len(text)
        if self._left < 0:
            most = f"all references of a step may have {FILLED_CHARACTERS:,} characters"
            raise ReferenceFault(reference.text, f"it is too long: {most} together")
        return value, text


def as_text(value: JsonValue) -> str:
    """Converts a value to text: a text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_true(value: JsonValue) -> bool:
    """Whether a value counts as true: not empty, null, 0, false, nor the text `false`, `no` or `0`.

    >>> [is_true(value) for value in ("x", [0], "", "no", 0, None)]
    [True, True, False, False, False, False]
    """
    return bool(value) and value not in ("false", "no", "0")


def look_up(value: JsonValue, keys: tuple[str, ...]) -> JsonValue:
    """Returns the value at these keys and list positions (from 0). Raises KeyError.

    >>> look_up({"papers": [{"title": "A"}]}, ("papers", "0", "title"))
    'A'
    >>> look_up({"papers": []}, ("paper",))
    Traceback (most recent call last):
    KeyError: "it has no 'paper'; it has: papers"
    """
    for number, key in enumerate(keys):
        where = "it" if number == 0 else _written(*keys[:number])
        if isinstance(value, dict):
            if key not in value:
                names = ", ".join(list(value)[:20]) or "nothing"
                raise KeyError(f"{where} has no {key!r}; it has: {names}")
            value = value[key]
        elif isinstance(value, list):
            if not (key.isdecimal() and int(key) < len(value)):
                raise KeyError(f"{where} is a list of {len(value)} and has no [{key}]")
            value = value[int(key)]
        else:
            raise KeyError(f"{where} is {_brief(value)} and has no {key!r}")
    return value


def _brief(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


class _Scanner:
    """Parses one reference of a text."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._start = start
        self._at = start + 2

    def reference(self) -> tuple[Reference, int]:
        """The reference, and the position after it. Raises ReferenceFault."""
        root = self._take(_ROOT)
        if root is None:
            raise self._fault("a reference begins with the name of a step or an input")
        parts = [Part(root[0])]
        while (part := self._part()) is not None:
            parts.append(part)
        default = self._default() if self._take(_DEFAULT) else None
        if not self._text.startswith("}", self._at):
            raise self._fault("it is not a reference")
        end = self._at + 1
        return Reference(self._text[self._start : end], tuple(parts), default), end

    def _part(self) -> Part | None:
        if self._text.startswith(".", self._at):
            key = _KEY.match(self._text, self._at + 1)
            if key is None:
                raise self._fault("a key is missing after the dot")
            self._at = key.end()
            return Part(key[0])
        if not self._text.startswith("[", self._at):
            self._skip()
            return None
        index = _INDEX.match(self._text, self._at)
        if index is not None:
            self._at = index.end()
            return Part(str(int(index[1])), in_brackets=True)
        self._at += 1
        key_text = self._json("brackets hold a number, or a text in double quotation marks")
        if not isinstance(key_text, str) or not self._text.startswith("]", self._at):
            raise self._fault("brackets hold a number, or a text in double quotation marks")
        self._at += 1
        return Part(key_text, in_brackets=True)

    def _default(self) -> Default:
        return Default(self._json('the default after ?? is JSON, such as "none", 0 or []'))

    def _json(self, why: str) -> JsonValue:
        self._skip()
        try:
            value: JsonValue
            value, self._at = _DECODER.raw_decode(self._text, self._at)
        except (ValueError, RecursionError):
            raise self._fault(why) from None
        self._skip()
        return value

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._skip()
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _fault(self, why: str) -> ReferenceFault:
        end = self._text.find("}", self._start, self._start + _SHOWN)
        shown = self._text[self._start : end + 1 if end > 0 else None][:_SHOWN]
        return ReferenceFault(shown, f"{why}; write $${{ for a literal ${{")


def require_list(value: object) -> object:
    """Returns the value if it is a list or a text (a reference to a list), else raises ValueError.

    It is called before the types of the field are tried, which would each report an error.
    """
    if not isinstance(value, str | list):
        raise ValueError("it is not a list; give a list, or one reference to a list")
    return value
