"""Reads verdicts and decisions from the last element of an answer (pure).

Only the end of an answer says what was decided. What an answer quotes, lists or shows as code, and
what is within a sentence, is not read.

An answer that ends in any other way is unclear: no sentence is interpreted, in no language.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from leadhand.models.verdicts import VerdictWord, verdict_word

#: Whether the object is the whole answer, is in a fence, or begins a line at the answer's end.
FoundBy = Literal["whole", "fence", "object"]
#: Characters at the end of an answer in which its last object must begin, and the lines there that
#: are tried as its first one.
SEARCHED = 256_000
_STARTS = 200
#: The most braces that are tried in the paragraph of the last object.
_BRACES = 1_000
_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^`]*)$")
DecidedBy = Literal["line", "json"]
_LINE = re.compile(r"(?:verdict:[ \t]*)?([a-z]+)\.?", re.IGNORECASE | re.ASCII)
_EMPHASIS = re.compile(r"(\*{1,3}|_{1,3})(?=[^\s*_])([^*_]*[^\s*_])\1")
#: Characters of a line that may be a verdict.
_LONGEST = 60
Word = Literal["yes", "no"]
Code = Literal["INVALID_SCHEMA", "NO_VALID_CANDIDATE"]
_WAY_OUT = 'answer with {"answer": "yes"} or {"answer": "no"} and nothing else'


class LastObject(NamedTuple):
    """The JSON object at the end of an answer."""

    value: dict[str, object]
    found_by: FoundBy
    #: The other objects of the same paragraph; None if there are too many to read.
    beside: tuple[dict[str, object], ...] | None


class RepeatedKey(ValueError):
    """An object has a key twice, so that it can be read in two ways."""


class _Fence(NamedTuple):
    start: int
    indent: int
    sign: str
    info: str


def last_object(text: str) -> LastObject | None:
    r"""Returns the JSON object with which an answer ends; None for any other end.

    It begins a line, or is alone in a closed fence. Raises RepeatedKey.

    >>> last_object('It fails.\n{"a": 1}').value
    {'a': 1}
    >>> last_object('It says {"a": 1}'), last_object('{"a": 1}\nor not')
    (None, None)
    """
    lines = text.strip().split("\n")
    opened, closed, end = _fences(lines)
    if opened is not None:
        return None
    if closed is not None and end == len(lines) - 1:
        return _fenced(lines, closed)
    return _bare(lines)


def last_line(text: str) -> str | None:
    r"""Returns the last line of an answer; None if it is indented, in a code block or below JSON.

    >>> last_line("Fine.\nACCEPT"), last_line("- a\n  ACCEPT"), last_line("```\nACCEPT")
    ('ACCEPT', None, None)
    """
    lines = text.strip().split("\n")
    opened, _, _ = _fences(lines)
    has_object = any(line.startswith("{") for line in _paragraph(lines[:-1]))
    if opened is not None or has_object or lines[-1][:1].isspace():
        return None
    return lines[-1].rstrip()


def _fences(lines: Sequence[str]) -> tuple[_Fence | None, _Fence | None, int]:
    """Returns the fence that is still open, the last closed one, and the line that closes it."""
    opened, closed, end = None, None, -1
    for number, line in enumerate(lines):
        found = _FENCE.match(line)
        if found is None:
            continue
        indent, sign, info = len(found[1].expandtabs(4)), found[2], found[3].strip()
        if opened is None:
            opened = _Fence(number, indent, sign, info)
        elif sign.startswith(opened.sign) and not info and indent <= opened.indent + 3:
            opened, closed, end = None, opened, number
    return opened, closed, end


def _fenced(lines: list[str], fence: _Fence) -> LastObject | None:
    if fence.indent or fence.info.lower() not in ("", "json"):
        return None
    value = _load("\n".join(lines[fence.start + 1 : -1]).strip())
    return _found(value, "fence", lines[: fence.start])


def _bare(lines: list[str]) -> LastObject | None:
    text = "\n".join(lines)
    at, tried = len(text) + 1, 0
    for number in reversed(range(len(lines))):
        at -= len(lines[number]) + 1
        if at < len(text) - SEARCHED or tried == _STARTS:
            return None
        if lines[number].startswith("{"):
            tried += 1
            value, end = _decode(text, at)
            if end == len(text):
                return _found(value, "object" if number else "whole", lines[:number])
    return None


def _found(value: object, found_by: FoundBy, above: Sequence[str]) -> LastObject | None:
    if not isinstance(value, dict):
        return None
    return LastObject(value, found_by, _objects("\n".join(_paragraph(above))))


def _paragraph(lines: Sequence[str]) -> Sequence[str]:
    """The lines after the last empty one."""
    start = next((n for n in range(len(lines), 0, -1) if not lines[n - 1].strip()), 0)
    return lines[start:]


def _objects(text: str) -> tuple[dict[str, object], ...] | None:
    """The outermost objects of a paragraph; None if it is too long or has too many braces."""
    found: list[dict[str, object]] = []
    at, tried = text.find("{"), 0
    if at >= 0 and len(text) > SEARCHED:
        return None
    while at >= 0:
        tried += 1
        if tried > _BRACES:
            return None
        value, end = _decode(text, at)
        if isinstance(value, dict):
            found.append(value)
        at = text.find("{", max(end, at + 1))
    return tuple(found)


def _load(text: str) -> object:
    value, end = _decode(text, 0)
    return value if end == len(text) else None


def _decode(text: str, at: int) -> tuple[object, int]:
    """Parses the JSON at a position; returns it with its end, which is -1 for text that is none."""
    try:
        return _DECODER.raw_decode(text, at)
    except RepeatedKey:
        raise
    except (ValueError, RecursionError):
        return None, -1


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({key.casefold() for key, _ in pairs}) < len(pairs):
        raise RepeatedKey
    return dict(pairs)


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeats)


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
    r"""Reads the yes-or-no JSON object with which an answer ends; Undecided for any other end.

    An object of the same paragraph that contradicts it leaves the answer undecided.

    >>> parse_decision('I looked.\n{"answer": "no"}')
    Decision(answer='no', found_by='object')
    >>> parse_decision('{"answer": "no"} - I hope that helps.').code
    'NO_VALID_CANDIDATE'
    >>> parse_decision('{"answer": "maybe"}').code
    'INVALID_SCHEMA'
    """
    try:
        found = last_object(text)
    except RepeatedKey:
        return _schema("it repeats a key")
    if found is None:
        return _schema("it is no object") if _is_json(text) else _nothing()
    answer = _answer_of(found.value)
    if answer is None:
        return _schema("its last object is no decision")
    if found.beside is None or {_answer_of(one) for one in found.beside} - {answer, None}:
        return _schema("it answers both yes and no")
    return Decision(answer, found.found_by)


def parse_only_decision(text: str) -> Decision | Undecided:
    """Parses a script's output, which must be a yes-or-no JSON object alone; else Undecided."""
    found = parse_decision(text)
    if isinstance(found, Decision) and found.found_by != "whole":
        return _schema("something else was printed beside the decision")
    return found


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _answer_of(value: dict[str, object]) -> Word | None:
    if value.keys() != {"answer"}:
        return None
    match value["answer"]:
        case "yes":
            return "yes"
        case "no":
            return "no"
        case _:
            return None


def _schema(why: str) -> Undecided:
    return Undecided("INVALID_SCHEMA", f"{why}; {_WAY_OUT}")


def _nothing() -> Undecided:
    return Undecided("NO_VALID_CANDIDATE", f"it does not end with a JSON object; {_WAY_OUT}")
