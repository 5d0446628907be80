"""How the words of an agent or a script become a yes or a no: one strict JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal, NamedTuple

Word = Literal["yes", "no"]
FoundBy = Literal["whole", "fence", "object"]
Code = Literal["INVALID_SCHEMA", "NO_VALID_CANDIDATE"]

#: How much of a text is searched for objects between prose, and how many of them are looked at.
SEARCHED = 20_000
CANDIDATES = 100

_FENCE, _FENCE_END = "```json", "```"
_WAY_OUT = 'answer with {"answer": "yes"} or {"answer": "no"} and nothing else'


class Decision(NamedTuple):
    """A yes or a no, and which rule found it."""

    answer: Word
    found_by: FoundBy

    @property
    def text(self) -> str:
        """The answer as it is kept.

        >>> Decision("yes", "whole").text
        '{"answer":"yes"}'
        """
        return f'{{"answer":"{self.answer}"}}'


class Undecided(NamedTuple):
    """Why a text decides nothing."""

    code: Code
    text: str


def parse_decision(text: str) -> Decision | Undecided:
    """The first object with exactly the key `answer` that says `yes` or `no`.

    Looked for in the whole text, then in each ```json fence, then in the balanced outermost
    {...} objects of its first 20,000 characters, at most 100 of them.

    >>> parse_decision('Sure: {"answer": "no"} - I hope that helps.')
    Decision(answer='no', found_by='object')
    >>> parse_decision('{"answer": "maybe"}').code
    'INVALID_SCHEMA'
    """
    seen = False
    for rule, candidate in _candidates(text):
        try:
            value = json.loads(candidate, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError):
            continue
        seen = True
        answer = _answer_of(value)
        if answer is not None:
            return Decision(answer, rule)
    return _schema() if seen else _nothing()


def parse_only_decision(text: str) -> Decision | Undecided:
    """The decision that a text is, with nothing around it: what a script must print."""
    found = parse_decision(text)
    if isinstance(found, Undecided) or found.found_by == "whole":
        return found
    why = f"something else was printed beside the decision; {_WAY_OUT}"
    return Undecided("INVALID_SCHEMA", why)


def _candidates(text: str) -> Iterator[tuple[FoundBy, str]]:
    yield "whole", text.strip()
    for body in _fences(text):
        yield "fence", body
    for body in _objects(text[:SEARCHED]):
        yield "object", body


def _fences(text: str) -> Iterator[str]:
    """What stands in each ```json fence and is an object by its outermost characters."""
    start = text.find(_FENCE)
    while start >= 0:
        begin = start + len(_FENCE)
        end = text.find(_FENCE_END, begin)
        if end < 0:
            return
        body = text[begin:end].strip()
        if body.startswith("{") and body.endswith("}"):
            yield body
        start = text.find(_FENCE, end + len(_FENCE_END))


def _objects(text: str) -> Iterator[str]:
    """The balanced outermost {...} of a text; braces within an object's strings do not count."""
    found, depth, start, quoted, escaped = 0, 0, 0, False, False
    for at, sign in enumerate(text):
        if quoted:
            quoted = escaped or sign != '"'
            escaped = sign == "\\" and not escaped
            continue
        depth, was = _deeper(depth, sign), depth
        quoted = depth > 0 and sign == '"'
        if was == 0 and depth == 1:
            start = at
        if was == 1 and depth == 0:
            yield text[start : at + 1]
            found += 1
            if found == CANDIDATES:
                return


def _deeper(depth: int, sign: str) -> int:
    if sign == "{":
        return depth + 1
    return depth - 1 if sign == "}" and depth > 0 else depth


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object] | None:
    """An object that says a thing twice says nothing."""
    found = dict(pairs)
    return found if len(found) == len(pairs) else None


def _answer_of(value: object) -> Word | None:
    if not isinstance(value, dict) or value.keys() != {"answer"}:
        return None
    match value["answer"]:
        case "yes":
            return "yes"
        case "no":
            return "no"
        case _:
            return None


def _schema() -> Undecided:
    return Undecided("INVALID_SCHEMA", f"JSON was found, and none of it decides; {_WAY_OUT}")


def _nothing() -> Undecided:
    return Undecided("NO_VALID_CANDIDATE", f"no JSON was found; {_WAY_OUT}")
