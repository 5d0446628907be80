"""Reads the verdict of a checker from the end of its answer (pure).

An answer that ends in any other way is unclear: no sentence is interpreted, in no language.
"""

from __future__ import annotations

import json
import re
from typing import Literal, NamedTuple

from leadhand.models.verdicts import VerdictWord, verdict_word
from workers.checkers.last_element import RepeatedKey, last_line, last_object

DecidedBy = Literal["line", "json"]

_LINE = re.compile(r"(?:verdict:[ \t]*)?([a-z]+)\.?", re.IGNORECASE | re.ASCII)
_EMPHASIS = re.compile(r"(\*{1,3}|_{1,3})(?=[^\s*_])([^*_]*[^\s*_])\1")
#: Characters of a line that may be a verdict.
_LONGEST = 60


class ReadVerdict(NamedTuple):
    """A verdict, the feedback for the doer, and the rule by which it was read."""

    verdict: VerdictWord
    feedback: str
    decided_by: DecidedBy


def read_verdict(text: str) -> ReadVerdict | None:
    r"""Reads the verdict with which an answer ends; None if it is unclear.

    >>> read_verdict("All criteria are met.\n\n**Verdict: ACCEPT**").verdict
    'accept'
    >>> read_verdict('{"verdict": "retry", "feedback": "mend it"}').feedback
    'mend it'
    >>> read_verdict("Looks good. ACCEPT"), read_verdict("> ACCEPT")
    (None, None)
    """
    try:
        return _from_line(text) or _from_object(text)
    except RepeatedKey:
        return None


def _from_line(text: str) -> ReadVerdict | None:
    line = last_line(text)
    if line is None or len(line) > _LONGEST:
        return None
    found = _LINE.fullmatch(_EMPHASIS.sub(r"\2", _EMPHASIS.sub(r"\2", line)))
    word = verdict_word(found[1]) if found is not None else None
    return None if word is None else ReadVerdict(word, text.strip(), "line")


def _from_object(text: str) -> ReadVerdict | None:
    found = last_object(text)
    if found is None or found.beside != ():
        return None
    word = verdict_word(found.value.get("verdict"))
    feedback, points = found.value.get("feedback") or "", found.value.get("points") or []
    if word is None or not isinstance(feedback, str) or not isinstance(points, list):
        return None
    texts = (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in points)
    listed = [f"- {one}" for one in texts]
    said = "\n".join(part for part in (feedback.strip(), *listed) if part)
    return ReadVerdict(word, said or text.strip(), "json")
