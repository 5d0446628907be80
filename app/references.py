"""Pure: `${references}` in a step's inputs, and what they stand for.

A string that is entirely `${node}` or `${node.key.key}` is a reference; anything else is literal.
`$${...}` is the literal `${...}`. Reserved words stand where a node's name would:

- `${previous.node.key}`: the node in the iteration before this one; None in the first
- `${history.node}`: verdict and feedback of the node in the last three iterations, oldest first
- `${item}`, `${index}`: of a for_each, what this item works on, and its number from 1
- `${node:text!}`: the node's text, or where there is none, why not
- `${top/loop/node:text!}`: of the node at that path from the program's own block, whatever other
  node has its name; `${top/a|top/loop/b:text!}`: of the last of several that ran
- `${turn.iteration}`, `${turn.max}`: of the innermost loop; `${turn.same}`: how many of its last
  iterations came to the same
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from pydantic import JsonValue

#: The keys that ask for a text which says so where there is none, and what it says: of what did not
#: run, of a step that failed, and of a loop in which no agent spoke.
TOLD = ("text!",)
NOT_RUN, FAILED, SILENT = "(did not run)", "(failed)", "(nothing was said)"
RESERVED = frozenset({"previous", "history", "item", "index", "turn"})
#: What a path begins with; no node's name has a slash or a bar.
_TOP, _OR = "top/", "|"
_WHOLE = re.compile(r"^\$\{([A-Za-z][^{}]*)\}$")
_ESCAPED = re.compile(r"^\$\$+\{[^{}]*\}$")


class Reference(NamedTuple):
    """A parsed reference: the word it begins with, and the keys that follow."""

    word: str
    keys: tuple[str, ...]


def literal(text: str) -> str:
    """The text so that it is never taken for a reference.

    >>> literal("${x}"), literal("$${x}"), literal("plain")
    ('$${x}', '$$${x}', 'plain')
    >>> [substitute(literal(text), lambda _: None) for text in ("${x}", "$${x}", "$$${x}")]
    ['${x}', '$${x}', '$$${x}']
    """
    return "$" + text if _WHOLE.match(text) or _ESCAPED.match(text) else text


def told_of(paths: Iterable[str]) -> str:
    """The reference to the text of whichever of these nodes ran last, they being in that order.

    >>> told_of(["plan", "loop/plan"])
    '${top/plan|top/loop/plan:text!}'
    """
    return "${" + _OR.join(f"{_TOP}{path}" for path in paths) + f":{TOLD[0]}}}"


def names_of(reference: Reference) -> tuple[str, ...]:
    """The nodes that it names, the last to run last: names, or paths as `path_named` reads them."""
    return tuple(reference.word.split(_OR))


def path_named(name: str) -> str | None:
    """The path in the program, where it is one.

    >>> path_named("top/loop/plan"), path_named("plan")
    ('loop/plan', None)
    """
    return name.removeprefix(_TOP) if name.startswith(_TOP) else None


def parse(text: str) -> Reference | None:
    """The reference that a whole string is, or None where it is plain text.

    >>> parse("${check.lint:text}")
    Reference(word='check.lint', keys=('text',))
    >>> parse("${do.text}")
    Reference(word='do', keys=('text',))
    """
    match = _WHOLE.match(text)
    if match is None:
        return None
    # Node names may hold dots; a colon then says where the name ends.
    name, colon, rest = match.group(1).partition(":")
    if colon:
        return Reference(name, tuple(rest.split(".")) if rest else ())
    word, *keys = match.group(1).split(".")
    return Reference(word, tuple(keys))


def references_in(value: JsonValue) -> Iterator[Reference]:
    """All references in a value, however deep."""
    if isinstance(value, str):
        found = parse(value)
        if found is not None:
            yield found
    elif isinstance(value, list):
        for item in value:
            yield from references_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from references_in(item)


def substitute(value: JsonValue, resolve: Callable[[Reference], JsonValue]) -> JsonValue:
    """The value with every reference replaced by what it stands for."""
    if isinstance(value, str):
        found = parse(value)
        if found is not None:
            return resolve(found)
        return value[1:] if _ESCAPED.match(value) else value
    if isinstance(value, list):
        return [substitute(item, resolve) for item in value]
    if isinstance(value, dict):
        return {key: substitute(item, resolve) for key, item in value.items()}
    return value


def look_up(value: JsonValue, keys: tuple[str, ...]) -> JsonValue:
    """What lies beneath these keys (list positions count from 0); None where there is nothing.

    >>> look_up({"a": [{"b": 1}]}, ("a", "0", "b"))
    1
    """
    for key in keys:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def of_outcome(outcome: Mapping[str, JsonValue] | None, keys: tuple[str, ...]) -> JsonValue:
    """What a reference to a step gives: its value where it has one, else the outcome itself.

    Of a step that was skipped, nothing; `succeeded` is whether it did.
    """
    if outcome is None or outcome.get("word") == "skipped":
        return None
    if keys == ("succeeded",):
        return outcome.get("word") == "succeeded"
    value = outcome.get("value")
    if value is None or (keys and not (isinstance(value, dict) and keys[0] in value)):
        value = dict(outcome) if value is None or keys else value
    return look_up(value, keys)
