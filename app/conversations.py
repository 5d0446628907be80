"""What was said in a conversation that nobody but us remembers, from the outcomes of its turns.

Such a conversation's thread names the step that spoke last, and each outcome the one before it. So
it lives where outcomes live, outlasts every process, and goes on at any worker; and one that is
taken up from an earlier turn is as it was then.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

#: Turns that are looked back at, newest first; what was said before them is forgotten.
TURNS = 200


class Said(NamedTuple):
    role: str
    text: str


def said_until(address: str, outcome_at: Callable[[str], str | None]) -> list[Said]:
    """All that was said up to a turn, oldest first.

    >>> kept = {"a": '{"word": "succeeded", "prompt": "Hi", "text": "Hello"}',
    ...         "b": '{"word": "succeeded", "prompt": "More", "text": "Yes",'
    ...              ' "thread": {"conversation": "x|", "id": "b", "after": "a"}}'}
    >>> [said.text for said in said_until("b", kept.get)]
    ['Hi', 'Hello', 'More', 'Yes']
    """
    turns: list[Said] = []
    seen = set[str]()
    at: str | None = address
    while at is not None and at not in seen and len(seen) < TURNS:
        seen.add(at)
        kept = outcome_at(at)
        outcome = json.loads(kept) if kept is not None else {}
        if outcome:
            told = (("assistant", outcome.get("text")), ("user", outcome.get("prompt")))
            turns += [Said(role, text) for role, text in told if text]
        at = (outcome.get("thread") or {}).get("after")
    return turns[::-1]
