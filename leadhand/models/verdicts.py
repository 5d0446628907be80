"""Parses the verdict of a checker's text: a line that is one, else JSON, else a plain sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

VerdictWord = Literal["accept", "retry", "terminate"]
DecidedBy = Literal["line", "json", "scan", "default"]


class Verdict(NamedTuple):
    """A parsed verdict with its feedback, and the rule that found it."""

    verdict: VerdictWord
    feedback: str
    decided_by: DecidedBy


_WORDS: tuple[VerdictWord, ...] = ("terminate", "retry", "accept")
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
_WORD = re.compile(r"\b(?:terminate|accept|retry)\b", re.IGNORECASE)
_ACCEPT = re.compile(r"\baccept\b", re.IGNORECASE)
#: A sentence ends at these signs or at the end of its line; the dot of `v1.2` ends none.
_SENTENCE_END = re.compile(r"(?:[!?]|\.(?!\w))+")
_CLAUSE_END = re.compile(r"[,;:()\N{EN DASH}\N{EM DASH}]|\s-+\s|\bbut\b", re.IGNORECASE)
#: Before `accept` in the same clause, these turn its meaning around.
_NEGATION = re.compile(
    r"""
    \b(?:not|cannot|never|neither|no|nothing|unable|without|refus\w+|declin\w+|fail\w*\s+to)\b
    | n['\N{RIGHT SINGLE QUOTATION MARK}]t\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
#: Anywhere in its clause, these make `accept` depend on something that is not so yet.
_CONDITION = re.compile(r"\b(?:if|unless|until|once|would|then)\b", re.IGNORECASE)
#: A negation that a short insertion between commas separates from the word.
_NEGATED_BEFORE_COMMA = re.compile(
    r"\b(?:not|cannot|never|can't|won't|unable\s+to),[^,]{1,60},\s*accept\b", re.IGNORECASE
)
_OBJECT_START = re.compile(r'\{\s*"')
_DECODER = json.JSONDecoder()
#: The most places from which a text is searched for JSON, to bound the time.
_MOST_OBJECTS = 200


def verdict_word(text: object) -> VerdictWord | None:
    """Returns the verdict that a text names, ignoring upper and lower case; None for other text.

    >>> verdict_word(" Accept "), verdict_word("accepted")
    ('accept', None)
    """
    word = text.strip().lower() if isinstance(text, str) else None
    return next((one for one in _WORDS if one == word), None)


def parse_verdict(text: str) -> Verdict:
    """Parses the last verdict in a text; a text without one is a retry.

    A sentence that is a question or negates the word accepts nothing.

    >>> parse_verdict("**Verdict: RETRY**")
    Verdict(verdict='retry', feedback='**Verdict: RETRY**', decided_by='line')
    >>> parse_verdict('{"verdict": "accept", "feedback": "well done"}')
    Verdict(verdict='accept', feedback='well done', decided_by='json')
    >>> parse_verdict("I cannot ACCEPT this").verdict
    'retry'
    """
    text = text.strip()
    return _from_line(text) or _from_json(text) or _from_scan(text)


def _from_line(text: str) -> Verdict | None:
    for line in reversed(text.splitlines()):
        match = _IS_VERDICT.match(line[:200])
        if match is not None and not line[200:].strip():
            return Verdict(cast("VerdictWord", match.group(1).lower()), text, "line")
    return None


def _from_json(text: str) -> Verdict | None:
    """Reads the objects with a verdict; those that contradict each other are a retry."""
    found = [(verdict_word(value.get("verdict")), value) for value in _objects(text)]
    verdicts = {word for word, _ in found if word is not None}
    if len(verdicts) > 1:
        return Verdict("retry", text, "json")
    if not verdicts and any("verdict" in value for _, value in found):
        return Verdict("retry", text, "default")
    for word, value in reversed(found):
        if word is not None:
            feedback = value.get("feedback")
            said = feedback.strip() if isinstance(feedback, str) else ""
            return Verdict(word, said or text, "json")
    return None


def _from_scan(text: str) -> Verdict:
    for sentence, is_question in _sentences_backwards(text):
        verdict = _verdict_of_sentence(sentence, is_question=is_question)
        if verdict is not None:
            return Verdict(verdict, text, "scan")
    return Verdict("retry", text, "default")


def _sentences_backwards(text: str) -> Iterator[tuple[str, bool]]:
    """Yields each sentence and whether it is a question, the last one first."""
    for line in reversed(text.splitlines()):
        if _WORD.search(line) is None:
            continue
        ends = list(_SENTENCE_END.finditer(line))
        starts = [0, *(end.end() for end in ends)]
        yield line[starts[-1] :], False
        for start, end in zip(reversed(starts[:-1]), reversed(ends), strict=True):
            yield line[start : end.start()], "?" in end.group()


def _verdict_of_sentence(sentence: str, *, is_question: bool) -> VerdictWord | None:
    """Terminate wins; accept counts only where it is alone, asserted and not negated."""
    clauses = _CLAUSE_END.split(sentence)
    words = {match.group().lower() for clause in clauses for match in _WORD.finditer(clause)}
    if not words:
        return None
    if "terminate" in words:
        return "terminate"
    if is_question or "retry" in words or any(map(_negates_accept, clauses)):
        return "retry"
    if _NEGATED_BEFORE_COMMA.search(sentence):
        return "retry"
    return "accept"


def _negates_accept(clause: str) -> bool:
    if _ACCEPT.search(clause) is None:
        return False
    negation = _NEGATION.search(clause)
    is_negated = negation is not None and _ACCEPT.search(clause, negation.end()) is not None
    return is_negated or _CONDITION.search(clause) is not None


def _objects(text: str) -> Iterator[dict[str, object]]:
    """Yields the outermost JSON objects of a text in their order."""
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
