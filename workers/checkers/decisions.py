"""Reads the yes or no at the end of the answer of an agent or a script: one strict JSON object."""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

from workers.checkers.last_element import FoundBy, RepeatedKey, last_object

Word = Literal["yes", "no"]
Code = Literal["INVALID_SCHEMA", "NO_VALID_CANDIDATE"]

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
