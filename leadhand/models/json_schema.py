"""Compares JSON with JSON Schemas: inputs, arguments of tools and fields of forms (pure).

References reach only `$defs` of the schema itself. All comparisons of a `Judge` together are
bounded, and patterns are matched in linear time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextvars import ContextVar
from decimal import Decimal, InvalidOperation
from functools import cache, lru_cache, partial
from itertools import islice
from typing import Annotated, Any, NamedTuple

from pydantic import JsonValue, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError

Schema = Mapping[str, JsonValue]

#: Keywords by the kind of value that they hold.
_SCHEMAS = ("items", "additionalProperties", "not")
_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_PLAIN = (
    "type", "enum", "const", "title", "description", "default", "examples", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required",
    "$schema", "$comment",
)  # fmt: skip
KEYWORDS = (*_PLAIN, *_SCHEMAS, *_LISTS, "properties")
#: Where `$ref` may lead.
_DEFINITIONS = ("$defs", "definitions")
#: The most levels of a schema.
DEEPEST = 20
#: The most keywords that a judge compares, those with a large value (by so many of its parts)
#: several times: errors quote it.
_CHECKS, _LARGE = 100_000, 1_000
#: How many parts of a value are walked in the time that the comparison of a keyword takes.
_PARTS = 4
#: The most characters of a pattern, the most states of its automaton, and how many steps of one
#: take as long as the comparison of a keyword.
_PATTERN, _STATES, _STEPS = 500, 5_000, 50
#: Characters of a limit that an error shows.
_SHOWN = 120

_KINDS = {
    "string": "a text", "integer": "a whole number", "number": "a number",
    "boolean": "true or false", "null": "null", "array": "a list", "object": "an object",
}  # fmt: skip
#: What a value should be or have, by the keyword that it does not meet.
_TEXTS = {
    "minimum": "be greater than or equal to {}",
    "maximum": "be less than or equal to {}",
    "exclusiveMinimum": "be greater than {}",
    "exclusiveMaximum": "be less than {}",
    "multipleOf": "be a multiple of {}",
    "minLength": "have at least {} characters",
    "maxLength": "have at most {} characters",
    "pattern": "match the pattern {}",
    "minItems": "have at least {} items",
    "maxItems": "have at most {} items",
    "uniqueItems": "have each item once",
    "minProperties": "have at least {} fields",
    "maxProperties": "have at most {} fields",
    "required": "have the fields {}",
    "additionalProperties": "have no fields but those of the schema",
    "enum": "be one of {}",
    "const": "be {}",
}


class TooLarge(Exception):
    """The comparison of a value with its schema would take too long."""


class Misfit(NamedTuple):
    """A part of a value that does not fit: its path, such as `.a[0]`, and what it should be."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"in {self.path}, {self.message}" if self.path else self.message


class Judge:
    """Compares values with schemas, with a limit for all of its comparisons together."""

    def __init__(self) -> None:
        self._left = _CHECKS
        #: The number of parts of each list and object, by its id.
        self._sizes: dict[int, int] = {}

    def misfits(self, schema: Schema, value: object, most: int = 50) -> list[Misfit]:
        """Return where a value does not fit a schema: nothing if it fits. Raises TooLarge.

        >>> Judge().misfits({"type": "array", "items": {"maximum": 3}}, [1, 4])
        [Misfit(path='[1]', message='it should be less than or equal to 3')]
        """
        return list(map(_misfit, self._errors(_compiled(schema).iter_errors(value), value, most)))

    def comparison(self, whole: Schema) -> Callable[[Any, object], bool]:
        """Return a function that compares values with parts of a schema. It raises TooLarge."""
        validator = _compiled(whole)

        def fits_part(part: Any, value: object) -> bool:
            errors = self._errors(validator.descend(value, part), value, 1)
            self.spend(None, self._size(value) // _PARTS)
            return not errors

        return fits_part

    def _errors(self, errors: Iterator[Any], value: object, most: int) -> list[Any]:
        self._sizes.clear()
        token = _JUDGE.set(self)
        try:
            self._measure(value)
            return list(islice(errors, most))
        except RecursionError:
            raise TooLarge from None
        finally:
            _JUDGE.reset(token)

    def spend(self, value: object, cost: int, *, walks: int = 0) -> None:
        """Count a comparison of a value that walks all its parts so many times. Raises TooLarge."""
        size = len(value) if isinstance(value, str) else self._size(value)
        self._left -= cost * (1 + size // _LARGE) + walks * self._size(value) // _PARTS
        if self._left < 0:
            raise TooLarge

    def _size(self, value: object) -> int:
        return self._sizes.get(id(value), 1)

    def _measure(self, value: object) -> int:
        size = 1
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, list | dict):
            if isinstance(value, dict):
                size += sum(map(len, value)) + sum(map(self._measure, value.values()))
            else:
                size += sum(map(self._measure, value))
            self._sizes[id(value)] = size
        return size


#: The judge of the comparison that runs.
_JUDGE: ContextVar[Judge] = ContextVar("judge")


def fits(schema: Schema, value: object) -> bool:
    """Whether a value fits a schema."""
    try:
        return not Judge().misfits(schema, value, most=1)
    except TooLarge:
        return False


def accepts_text(schema: Schema) -> bool:
    """Whether texts are valid values, or the schema does not say what is.

    >>> kinds = {"type": "integer"}, {"enum": ["a", 1]}, {}, {"anyOf": [{"type": "null"}]}
    >>> [accepts_text(one) for one in kinds]
    [False, True, True, False]
    """
    kinds, values, members = schema.get("type"), schema.get("enum"), schema.get("anyOf")
    if kinds is not None:
        return "string" in (kinds if isinstance(kinds, list) else [kinds])
    if isinstance(members, list):
        return any(accepts_text(one) for one in members if isinstance(one, dict))
    return not isinstance(values, list) or any(isinstance(one, str) for one in values)


def typed_value(text: str, schema: Schema) -> JsonValue:
    """Parses a text as JSON if the schema accepts no such text; else returns the text.

    >>> typed_value("7", {"type": "integer"}), typed_value("7", {"type": "string"})
    (7, '7')
    >>> typed_value("7", {"oneOf": [{"const": 7}]}), typed_value("7", {"anyOf": [{"const": 7}]})
    (7, 7)
    >>> typed_value("77", {"type": "string", "maxLength": 1})
    '77'
    """
    if fits(schema, text):
        return text
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if accepts_text(schema) and not fits(schema, value) else value


def members(schema: Schema) -> Iterator[tuple[str, JsonValue]]:
    """Yields the schemas directly in a schema, each with its path."""
    for name in _SCHEMAS:
        if name in schema:
            yield f".{name}", schema[name]
    for name in _LISTS:
        found = schema.get(name)
        for number, one in enumerate(found if isinstance(found, list) else []):
            yield f".{name}[{number}]", one
    for name, one in properties_of(schema).items():
        yield f".properties.{name}", one


def schema_of(schema: JsonValue | Schema, name: str) -> dict[str, JsonValue]:
    """Returns the schema of one field of an object, with `$defs`; {} if it is not there."""
    found = properties_of(schema).get(name)
    if not isinstance(found, dict) or not isinstance(schema, Mapping):
        return {}
    return {**{one: schema[one] for one in _DEFINITIONS if one in schema}, **found}


def properties_of(schema: JsonValue | Schema) -> Mapping[str, JsonValue]:
    """Returns the schemas of the fields of an object by their names."""
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, dict) else {}


def keyword_errors(schema: Schema) -> Iterator[tuple[str, str]]:
    """Yields the errors in the keywords of one level of a schema: path and message."""
    for name, value in schema.items():
        if name in _PLAIN and not _is_valid(name, value):
            yield f".{name}", f"it should be {_VALUES[name][0]}"
    if not isinstance(schema.get("properties", {}), dict):
        yield ".properties", "it should be an object"
    for name in _LISTS:
        if name in schema and not (isinstance(schema[name], list) and schema[name]):
            yield f".{name}", "it is no list of at least one schema"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and _matcher(pattern) is None:
        most = f"{_PATTERN} characters and few repetitions"
        yield ".pattern", f"it is no pattern of at most {most}, without look-around"


def _is_valid(name: str, value: JsonValue) -> bool:
    """Whether JSON Schema accepts the value of a keyword.

    >>> [_is_valid("type", one) for one in ("null", "int", [], ["null", "null"], ["null"])]
    [True, False, False, False, True]
    >>> [_is_valid("minimum", one) for one in (1, 1.5, True, "1")]
    [True, True, False, False]
    """
    return name not in _VALUES or _VALUES[name][1](value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_names(value: Any) -> bool:
    is_list = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return is_list and len(set(value)) == len(value)


def _are_types(value: Any) -> bool:
    kinds = [value] if isinstance(value, str) else value
    return _are_names(kinds) and bool(kinds) and set(kinds) <= set(_KINDS)


_NUMBER = ("a number", _is_number)
_COUNT = ("a whole number from 0", lambda one: _is_number(one) and one >= 0 and one % 1 == 0)
_TEXT = ("a text", lambda one: isinstance(one, str))
_LIST = ("a list", lambda one: isinstance(one, list))
#: What the values of keywords are; those of others are any JSON.
_VALUES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "type": (f"one of {', '.join(_KINDS)}, or a list of them", _are_types),
    "required": ("a list of names, each once", _are_names),
    "multipleOf": ("a number above 0", lambda one: _is_number(one) and one > 0),
    "uniqueItems": ("true or false", lambda one: isinstance(one, bool)),
    "minimum": _NUMBER, "maximum": _NUMBER, "exclusiveMinimum": _NUMBER,
    "exclusiveMaximum": _NUMBER, "minLength": _COUNT, "maxLength": _COUNT, "minItems": _COUNT,
    "maxItems": _COUNT, "minProperties": _COUNT, "maxProperties": _COUNT, "pattern": _TEXT,
    "title": _TEXT, "description": _TEXT, "$schema": _TEXT, "$comment": _TEXT,
    "enum": _LIST, "examples": _LIST,
}  # fmt: skip


def supported(schema: JsonValue | Schema) -> Any:
    """Returns the part of a schema that a judge compares: each value that fits it fits that part.

    >>> supported({"type": "string", "pattern": "(?=a)", "format": "uri", "maxLength": 3})
    {'type': 'string', 'maxLength': 3}
    >>> supported({"not": {"format": "uri"}, "oneOf": [{"$ref": "http://a/b"}, {"const": 1}]})
    {'anyOf': [{}, {'const': 1}]}
    """
    if not isinstance(schema, Mapping):
        return _part(schema, frozenset(), 0)
    held = [(n, found) for n in _DEFINITIONS if isinstance(found := schema.get(n), dict)]
    known = frozenset(f"#/{n}/{key}" for n, found in held for key in found if _is_plain(key))
    definitions = {n: {k: _part(one, known, 1) for k, one in found.items()} for n, found in held}
    return _part(schema, known, 0) | definitions


def _is_plain(name: str) -> bool:
    """Whether a definition's name is written in a reference as it is."""
    return name.isprintable() and not set(name) & set("/~%")


def _part(schema: JsonValue | Schema, known: Set[str], depth: int) -> Any:
    """The part of a schema that is compared; `known` are the references that lead somewhere."""
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return schema if isinstance(schema, bool) else {}
    kept: dict[str, Any] = {
        name: schema[name]
        for name in _PLAIN
        if name in schema and name != "$schema" and _is_valid(name, schema[name])
    }
    if isinstance(pattern := kept.get("pattern"), str) and _matcher(pattern) is None:
        del kept["pattern"]
    if isinstance(reference := schema.get("$ref"), str) and reference in known:
        kept["$ref"] = reference
    kept |= dict(_parts_within(schema, partial(_part, known=known, depth=depth + 1)))
    # What is left of a schema may accept more: then `not` and `oneOf` would accept less.
    if kept.get("not") != schema.get("not"):
        del kept["not"]
    if "oneOf" in kept and kept["oneOf"] != schema["oneOf"]:
        kept.setdefault("anyOf", kept.pop("oneOf"))
    return kept


def _parts_within(schema: Schema, part: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    if properties := properties_of(schema):
        yield "properties", {name: part(one) for name, one in properties.items()}
    for name in _SCHEMAS:
        if name in schema and not _is_of_rest(name, schema):
            yield name, part(schema[name])
    for name in _LISTS:
        if isinstance(found := schema.get(name), list) and found:
            yield name, [part(one) for one in found]


def _is_of_rest(name: str, schema: Schema) -> bool:
    """Whether a keyword is for the rest of what a keyword covers that is not compared."""
    if name == "items":
        return "prefixItems" in schema and not isinstance(schema["prefixItems"], list)
    is_known = isinstance(schema.get("properties", {}), dict)
    return name == "additionalProperties" and ("patternProperties" in schema or not is_known)


def _compiled(schema: Schema) -> Any:
    try:
        return _validator(json.dumps(schema))
    except RecursionError:
        raise TooLarge from None


@lru_cache(maxsize=512)
def _validator(text: str) -> Any:
    """The compiled schema, without keywords whose values are not valid."""
    return _validator_class()(supported(json.loads(text)))


@cache
def _validator_class() -> Any:
    """The validator of draft 2020-12, with bounds."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    own: dict[str, Callable[[Any, Any], bool]] = {
        "multipleOf": _is_multiple,
        "uniqueItems": _is_unique,
        "pattern": _matches,
    }
    known = Draft202012Validator.VALIDATORS | {n: _keyword(one) for n, one in own.items()}
    compared = {name: _counted(name, known[name]) for name in (*KEYWORDS, "$ref") if name in known}
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer)
    return extend(Draft202012Validator, compared, type_checker=types)


def whole(value: Any) -> Any:
    """Returns a number without a fraction as an integer, which JSON does not tell from it.

    Beyond 64 bits such a float has other digits than were written, and no call converts it.

    >>> whole(3.0), whole(2.5), whole(1e20)
    (3, 2.5, 1e+20)
    """
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**63
    return int(value) if is_whole else value


def _is_integer(_checker: object, value: object) -> bool:
    return isinstance(whole(value), int) and not isinstance(value, bool)


_Keyword = Callable[[Any, Any, Any, Any], Iterable[Any] | None]


def _counted(name: str, keyword: _Keyword) -> _Keyword:
    def compare(validator: Any, limit: Any, value: Any, schema: Any) -> Iterable[Any] | None:
        judge, cost = _JUDGE.get(), 1 + (len(limit) if isinstance(limit, list | dict) else 0)
        # To compare parts with those of a limit takes longer than to list them.
        walks = {"enum": 8 * cost, "const": 8, "uniqueItems": 1}.get(name, 0)
        judge.spend(value, cost, walks=walks)
        if name in ("items", "additionalProperties") and isinstance(value, list | dict):
            judge.spend(None, len(value))
        return keyword(validator, limit, value, schema)

    return compare


def _keyword(accepts: Callable[[Any, Any], bool]) -> _Keyword:
    from jsonschema import ValidationError as Error

    def compare(_validator: Any, limit: Any, value: Any, _schema: Any) -> Iterable[Any]:
        return () if accepts(limit, value) else (Error("it does not fit"),)

    return compare


def _is_multiple(step: float, value: object) -> bool:
    """Compares in decimal, in which 0.3 is a multiple of 0.1.

    >>> _is_multiple(0.1, 0.3), _is_multiple(0.1, 0.35), _is_multiple(1e-300, 1e300)
    (True, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    try:
        return Decimal(str(value)) % Decimal(str(step)) == 0
    except InvalidOperation:  # more digits than decimals have
        return False


def _is_unique(is_wanted: bool, value: object) -> bool:
    if not is_wanted or not isinstance(value, list):
        return True
    return len({json.dumps(one, sort_keys=True) for one in value}) == len(value)


def _matches(pattern: str, value: object) -> bool:
    matcher = _matcher(pattern)
    if matcher is None or not isinstance(value, str):
        return True
    _JUDGE.get().spend(None, _states(pattern) * len(value) // _STEPS)
    try:
        matcher.validate_python(value)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=512)
def _matcher(pattern: str) -> TypeAdapter[str] | None:
    """Compiles a pattern to an automaton; None if it is too large, or has look-around.

    >>> [_matcher(one) is None for one in ("^a+$", "(?=a)", "((a{99}){99}){99}", "(a+)+$")]
    [False, True, True, False]
    """
    if len(pattern) > _PATTERN or _states(pattern) > _STATES:
        return None
    # As in ECMAScript, these classes are of ASCII alone.
    ascii_only = re.sub(r"\\.", lambda found: _ASCII.get(found[0], found[0]), pattern)
    try:
        return TypeAdapter(Annotated[str, StringConstraints(pattern=ascii_only)])
    except SchemaError:
        return None


_ASCII = {r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[0-9A-Za-z_]", r"\W": "[^0-9A-Za-z_]"}
#: The parts of a pattern: a repetition, a class, and others.
_TOKEN = re.compile(r"\{(?P<few>\d*),?(?P<many>\d*)\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)


@lru_cache(maxsize=512)
def _states(pattern: str) -> int:
    """Estimates the number of states of a pattern's automaton.

    >>> _states("ab"), _states("[a-z]{3}"), _states("(ab{2,5}c){3}x")
    (2, 3, 22)
    """
    open_groups, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        if token["few"] is not None:
            open_groups[-1] += last * (int(token["many"] or token["few"] or 0) - 1)
        elif token[0] == "(":
            open_groups.append(0)
        elif token[0] == ")" and len(open_groups) > 1:
            last = open_groups.pop()
            open_groups[-1] += last
        elif token[0] not in "*+?":
            last = 100 if token[0] in (r"\p", r"\P") else 1
            open_groups[-1] += last
    return sum(open_groups)


def _misfit(error: Any) -> Misfit:
    path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
    if error.validator not in ("anyOf", "oneOf"):
        text = f"it should {_text(error.validator, error.validator_value)}"
        return Misfit(path, text + "; write its digits" * _is_large_integer(error))
    of_other_types = {one.schema_path[0]: one for one in error.context if _is_of_type(one)}
    rest = [one for one in error.context if one.schema_path[0] not in of_other_types]
    if len({one.schema_path[0] for one in rest}) == 1:
        return _misfit(rest[0])
    if of_other_types and not rest:
        kinds = " or ".join(_kinds(one.validator_value) for one in of_other_types.values())
        return Misfit(path, f"it should be {kinds}")
    return Misfit(path, "it should have one of the forms that the schema allows")


def _is_large_integer(error: Any) -> bool:
    """Whether a whole number is given as a float that no call converts."""
    is_of_type = error.validator == "type" and "integer" in error.validator_value
    return is_of_type and isinstance(error.instance, float) and error.instance.is_integer()


def _is_of_type(error: Any) -> bool:
    """Whether a member of a union is for values of another type."""
    return error.validator == "type" and not error.path


def _text(keyword: str | None, limit: Any) -> str:
    """What a value should be or have."""
    if keyword == "type":
        return f"be {_kinds(limit)}"
    if isinstance(limit, float):
        limit = f"{limit:g}"
    shown = ", ".join(map(str, limit)) if isinstance(limit, list) else str(limit)
    text = _TEXTS.get(keyword or "", "fit the schema").format(shown[:_SHOWN])
    return text.removesuffix("s") if limit == 1 and "at " in text else text


def _kinds(kinds: str | list[str]) -> str:
    """Names types in words.

    >>> _kinds(["integer", "null"])
    'a whole number or null'
    """
    known = [kinds] if isinstance(kinds, str) else kinds
    return " or ".join(_KINDS.get(one, one) for one in known)
