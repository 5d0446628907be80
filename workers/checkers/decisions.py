"""Parses the yes or no in the answer of an agent or a script: one strict JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Word = Literal["yes", "no"]
FoundBy = Literal["whole", "fence", "object"]
Code = Literal["INVALID_SCHEMA", "NO_VALID_CANDIDATE"]

#: The characters of a text that are searched for objects between prose, and the most objects.
SEARCHED = 64_000
CANDIDATES = 1_000

_FENCE, _FENCE_END = re.compile(r"```[ \t]*json\b", re.IGNORECASE), "```"
_WAY_OUT = 'answer with {"answer": "yes"} or {"answer": "no"} and nothing else'


class Decision(NamedTuple):
    """A yes or a no, and which rule found it."""

    answer: Word
    found_by: FoundBy

    @property
    def text(self) -> str:
        """Return the answer as compact JSON.

        >>> Decision("yes", "whole").text
        '{"answer":"yes"}'
        """
        return f'{{"answer":"{self.answer}"}}'


class Undecided(NamedTuple):
    """Why a text decides nothing."""

    code: Code
    text: str


def parse_decision(text: str) -> Decision | Undecided:
    """Finds a yes-or-no JSON object in an answer; Undecided if there is none or both occur.

    Candidates are the whole text, then each ```json fence, then the balanced outermost {...}
    objects of its first 20,000 characters, at most 100 of them. The first valid candidate is the
    decision; a later one that contradicts it leaves the text undecided.

    >>> parse_decision('Sure: {"answer": "no"} - I hope that helps.')
    Decision(answer='no', found_by='object')
    >>> parse_decision('{"answer": "maybe"}').code
    'INVALID_SCHEMA'
    """
    seen, found = _decisions(text)
    if len({one.answer for one in found}) > 1:
        return Undecided("INVALID_SCHEMA", f"it answers both yes and no; {_WAY_OUT}")
    if found:
        return found[0]
    return _schema() if seen else _nothing()


def parse_only_decision(text: str) -> Decision | Undecided:
    """Parses a script's output, which must be a yes-or-no JSON object alone; else Undecided."""
    seen, found = _decisions(text)
    if not found:
        return _schema() if seen else _nothing()
    if found[0].found_by == "whole":
        return found[0]
    why = f"something else was printed beside the decision; {_WAY_OUT}"
    return Undecided("INVALID_SCHEMA", why)


def _decisions(text: str) -> tuple[bool, list[Decision]]:
    """Returns whether the text has any JSON, and its valid candidates in their order."""
    seen, found = False, []
    for rule, candidate in _candidates(text):
        try:
            value = json.loads(candidate, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError):
            continue
        seen = True
        answer = _answer_of(value)
        if answer is not None:
            found.append(Decision(answer, rule))
    return seen, found


def _candidates(text: str) -> Iterator[tuple[FoundBy, str]]:
    yield "whole", text.strip()
    for body in _fences(text):
        yield "fence", body
    for body in _objects(text[:SEARCHED]):
        yield "object", body


def _fences(text: str) -> Iterator[str]:
    """Yields the body of each ```json fence that begins with { and ends with }."""
    fence = _FENCE.search(text)
    while fence is not None:
        end = text.find(_FENCE_END, fence.end())
        if end < 0:
            return
        body = text[fence.end() : end].strip()
        if body.startswith("{") and body.endswith("}"):
            yield body
        fence = _FENCE.search(text, end + len(_FENCE_END))


def _objects(text: str) -> Iterator[str]:
    """Yields the balanced outermost {...} of a text; braces in an object's strings do not count."""
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
    """Returns None for an object that repeats a key."""
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
    return Undecided("INVALID_SCHEMA", f"it has JSON, but no valid decision; {_WAY_OUT}")


def _nothing() -> Undecided:
    return Undecided("NO_VALID_CANDIDATE", f"it has no JSON; {_WAY_OUT}")
