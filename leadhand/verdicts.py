"""How a checker's words become a verdict: a line that is one, else JSON, else a word found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

VerdictWord = Literal["accept", "retry", "terminate"]
DecidedBy = Literal["line", "json", "scan", "default"]


class Verdict(NamedTuple):
    """What a text says about the work, and which rule found it."""

    verdict: VerdictWord
    feedback: str
    decided_by: DecidedBy


#: Where one line holds several words, the gravest is believed.
_GRAVEST_FIRST: tuple[VerdictWord, ...] = ("terminate", "accept", "retry")
_IS_VERDICT = re.compile(
    r"""
    ^[\s>*_\#`~-]*                              # a quote, a list item, a heading, emphasis
    (?:(?:(?:final|overall|my)\s+)?verdict
       [\s*_`]* (?: : | = | - | is ) [\s*_`"']*)?   # 'Verdict:', plain or bold
    (terminate|accept|retry)
    [\s*_`~"'.,;:!)]*$                          # emphasis closed, a sentence ended
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OBJECT_START = re.compile(r'\{\s*"')
_DECODER = json.JSONDecoder()
#: A longer text is not searched for JSON from more places than this, so that no text is slow.
_MOST_OBJECTS = 200


def parse_verdict(text: str) -> Verdict:
    """The verdict that a text ends with; a text without one asks for another try.

    >>> parse_verdict("**Verdict: RETRY**")
    Verdict(verdict='retry', feedback='**Verdict: RETRY**', decided_by='line')
    >>> parse_verdict('{"verdict": "accept", "feedback": "well done"}')
    Verdict(verdict='accept', feedback='well done', decided_by='json')
    """
    text = text.strip()
    lines = text.splitlines()
    return _from_line(text, lines) or _from_json(text) or _from_scan(text, lines)


def _from_line(text: str, lines: list[str]) -> Verdict | None:
    for line in reversed(lines):
        match = _IS_VERDICT.match(line[:200])
        if match is not None and not line[200:].strip():
            return Verdict(cast("VerdictWord", match.group(1).lower()), text, "line")
    return None


def _from_json(text: str) -> Verdict | None:
    found: Verdict | None = None
    for value in _objects(text):
        word = value.get("verdict")
        if isinstance(word, str) and word.strip().lower() in _GRAVEST_FIRST:
            feedback = value.get("feedback")
            told = feedback.strip() if isinstance(feedback, str) else ""
            found = Verdict(cast("VerdictWord", word.strip().lower()), told or text, "json")
    return found


def _from_scan(text: str, lines: list[str]) -> Verdict:
    for line in reversed(lines):
        upper = line.upper()
        for word in _GRAVEST_FIRST:
            if word.upper() in upper:
                return Verdict(word, text, "scan")
    return Verdict("retry", text, "default")


def _objects(text: str) -> Iterator[dict[str, object]]:
    """The JSON objects in a text, the outermost of nested ones, in the order they stand in."""
    if '"verdict"' not in text:
        return
    starts = [match.start() for match in _OBJECT_START.finditer(text)][-_MOST_OBJECTS:]
    done_until = 0
    for start in starts:
        if start < done_until:
            continue
        try:
            value, done_until = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value
