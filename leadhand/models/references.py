"""The grammar of `${references}`: its parser, its printer, and what a reference names (pure).

A reference is a path, such as `${search.papers[0].title}`, with an optional default in JSON:
`${fetch.text ?? "none"}`. Its first word is the name of a step, or `inputs`, `item` or `index`.
`${steps.NAME...}` and `${steps["any name"]...}` name a step whatever it is called. `$${` is a
literal `${`.

In graphs and workflows each `${` begins a reference. In the texts of flows only `${steps...}`,
`${inputs.NAME}`, `${item...}` and `${index}` do, as prompts may have shell variables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Literal, NamedTuple, TypeVar

from pydantic import JsonValue

from leadhand.models.suggestions import nearest

#: First words that name no step, and have no meaning in graphs.
_RESERVED = ("previous", "history", "turn")

#: The most references of a document, each of which is parsed several times.
MAX_REFERENCES = 20_000
#: The most characters of a step's name.
NAME_CHARACTERS = 120

# Begins at the first of several dollar signs and keeps all of them: a long row is read once.
_OPENING = re.compile(r"(?<!\$)(\$++)\{")
_ROOT = re.compile(r"[^\W\d][\w-]*")
_KEY = re.compile(r"[\w-]+")
_INDEX = re.compile(r"\[\s*(\d{1,9})\s*\]")
_POSITION = re.compile(r"0|[1-9][0-9]{0,8}")
_SPACE = re.compile(r"\s*")


_Read = TypeVar("_Read")


def _no_number(name: str) -> JsonValue:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
_DEFAULT = re.compile(r"\?\?")
_NOT = re.compile(r"^not\s+")
# What begins a reference in a text of a flow, also of a step with forEach; escaped ones included.
_IN_FLOW = re.compile(rf"{_OPENING.pattern}(?=\s*steps[.\[]|inputs\.)")
_WITH_ITEM = re.compile(rf"{_IN_FLOW.pattern[:-1]}|\s*(?:item|index)\s*[.\[?}}])")
#: Labels and inputs of flows may have any characters but braces.
_LABEL, _INPUT = re.compile(r"\$\{steps\.([^{}]+)\}"), re.compile(r"\$\{inputs\.([^{}]*)\}")
#: A malformed reference, for an error.
_LEFT = re.compile(r"\$\{(steps|inputs)\.[^{}\n]{0,60}\}?")
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


class UnknownStep(ReferenceFault):
    """A reference names no step."""


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
    return _split(text, _OPENING, lambda start: _Scanner(text, start).reference())


def _split(
    text: str, openings: re.Pattern[str], read: Callable[[int], tuple[_Read, int]]
) -> list[str | _Read]:
    """The literal parts of a text, unescaped, and what is read where a reference begins."""
    found: list[str | _Read] = []
    literal, at = "", 0
    while (opening := openings.search(text, at)) is not None:
        literal += text[at : opening.start()]
        at = opening.end()
        if len(opening[1]) > 1:
            literal += opening[0][1:]
            continue
        reference, at = read(opening.start())
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


def escape(text: str) -> str:
    """Escapes `${` in a text with a `$`, so that it contains no references.

    >>> parse(escape("${HOME} and $${x}"))
    ['${HOME} and $${x}']
    """
    return _OPENING.sub(lambda found: "$" + found[0], text)


def map_texts(value: JsonValue, change: Callable[[str], JsonValue]) -> JsonValue:
    """Returns a JSON value with all of its texts changed, at any depth.

    >>> map_texts({"a": ["x", 1]}, str.upper)
    {'a': ['X', 1]}
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {name: map_texts(item, change) for name, item in value.items()}
    return value


def step_reference(name: str, *keys: str | int) -> str:
    """Formats a reference to a step's result, or to a part of it.

    >>> step_reference("search", "papers", 0), step_reference("fetch papers")
    ('${steps.search.papers[0]}', '${steps["fetch papers"]}')
    """
    return written(("steps", name, *keys))


def written(parts: Iterable[Part | str | int], default: Default | None = None) -> str:
    """Formats a reference of these parts, the first of which is a word.

    >>> written(parse("${a[0].b  ??  {}}")[0].parts, Default({}))
    '${a[0].b ?? {}}'
    """
    value = "" if default is None else f" ?? {json.dumps(default.value, ensure_ascii=False)}"
    return "${" + path_of(parts) + value + "}"


def path_of(parts: Iterable[Part | str | int]) -> str:
    """Formats a path.

    >>> path_of(["papers", 0, "title of it"])
    'papers[0]["title of it"]'
    """
    return "".join(map(_accessor, parts)).removeprefix(".")


def _accessor(part: Part | str | int) -> str:
    key, in_brackets = part if isinstance(part, Part) else (str(part), isinstance(part, int))
    if in_brackets and _POSITION.fullmatch(key):
        return f"[{key}]"
    is_plain = not in_brackets and _KEY.fullmatch(key)
    return f".{key}" if is_plain else f"[{json.dumps(key, ensure_ascii=False)}]"


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
    raise UnknownStep(reference.text, f"there is no step {parts[0].key!r}")


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


def hint_of(reference: Reference, names: Collection[str]) -> str:
    """Returns what to write instead of a reference to no step.

    >>> hint_of(parse("${titel.long}")[0], ["title"])
    "did you mean 'title', or write $${ for a literal ${"
    """
    first, *rest = (part.key for part in reference.parts)
    near = nearest(rest[0] if first == "steps" and rest else first, names)
    way = f"did you mean {near!r}" if near else "name a step of this graph"
    return f"{way}, or write $${{ for a literal ${{"


class Condition(NamedTuple):
    """The `when` of a step without its `not`: the text of a reference."""

    text: str
    is_negated: bool


def condition_of(when: str) -> Condition:
    """Splits the `when` of a step into its reference and whether a leading `not` negates it.

    >>> condition_of("not ${steps.a.found}")
    Condition(text='${steps.a.found}', is_negated=True)
    """
    text = _NOT.sub("", when)
    return Condition(text, text != when)


class FlowReference(NamedTuple):
    """A reference in a text of a flow."""

    #: As it is written in the flow.
    text: str
    kind: Literal["step", "input", "item", "index"]
    #: The label of the step, or the name of the input.
    name: str = ""
    keys: tuple[str, ...] = ()
    default: Default | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the reference is to the whole text of a step, without keys and default."""
        return self.kind == "step" and not self.keys and self.default is None


class BadReference(NamedTuple):
    """A reference in a text of a flow that names nothing, or is malformed."""

    text: str
    why: str


def split_flow_text(
    text: str, labels: Collection[str], *, has_item: bool = False
) -> list[str | FlowReference | BadReference]:
    """Splits a text of a flow into its literal parts and its references, also invalid ones.

    Only a step with forEach has an item.

    >>> split_flow_text("see ${steps.a.b[0]} in ${HOME}", {"a", "a.b"})[1:]
    [FlowReference(text='${steps.a.b[0]}', kind='step', name='a.b', keys=('0',), default=None),
     ' in ${HOME}']
    """
    openings = _WITH_ITEM if has_item else _IN_FLOW
    return _split(text, openings, lambda start: _flow_reference(text, start, labels))


def whole_in_flow(
    text: str, labels: Collection[str], *, has_item: bool = False
) -> FlowReference | None:
    """Returns the valid reference that is the entire text of a flow, or None."""
    (first, *others) = split_flow_text(text, labels, has_item=has_item)
    return first if isinstance(first, FlowReference) and not others else None


def names_step(line: str) -> bool:
    """Whether a line of a flow is one reference `${steps.LABEL}`, to any label."""
    return _LABEL.fullmatch(line) is not None


def escape_flow_text(text: str) -> str:
    """Escapes the references to steps and inputs in a text, so that a flow keeps it as it is.

    >>> split_flow_text(escape_flow_text("Is ${steps.x} in ${HOME}?"), ())
    ['Is ${steps.x} in ${HOME}?']
    """
    return _IN_FLOW.sub(lambda found: "$" + found[0], text)


def _flow_reference(
    text: str, start: int, labels: Collection[str]
) -> tuple[FlowReference | BadReference, int]:
    """The reference at a position of a text, and the position after it."""
    if (named := _INPUT.match(text, start)) is not None:
        return FlowReference(named[0], "input", named[1]), named.end()
    label = _LABEL.match(text, start)
    if label is not None and label[1] in labels:
        return FlowReference(label[0], "step", label[1]), label.end()
    left = _LEFT.match(text, start)
    try:
        if left is not None and left[1] == "inputs":
            raise ReferenceFault(left[0], _left_over(left))
        reference, end = _Scanner(text, start).reference()
    except ReferenceFault as fault:
        shown = label or left
        end = start + 2 if shown is None else shown.end()
        is_label = label is not None and not re.search(r"[\[\]\"]|\?\?", label[1])
        why = _not_visible(label[1]) if label and is_label else left and _left_over(left)
        return BadReference(text[start:end], why or fault.why), end
    try:
        kind, name, keys = target_of(reference, labels)
    except ReferenceFault as fault:
        first, *rest = reference.parts
        why = _not_visible(rest[0].key) if first.key == "steps" else fault.why
        return BadReference(reference.text, why), end
    return FlowReference(reference.text, kind, name, keys, reference.default), end


def _not_visible(label: str) -> str:
    hint = "refer to an earlier step of this list or of an enclosing list"
    return f"the label {label!r} is not visible here; {hint}"


def _left_over(left: re.Match[str]) -> str:
    kind, way = "an input", "${inputs.NAME}"
    if left[1] == "steps":
        kind, way = "a step", "${steps.LABEL}, by a label without braces"
    return f"{left[0]!r} is not {kind} reference; write {way}, or ${left[0]} to keep it literally"


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
