"""Restores the messages of a conversation from the outcomes of its turns.

This is for agents (models) that do not store conversations themselves. The conversation's thread
names its last step, and the outcome of each step names the step before. The messages are stored
with the outcomes, so that any worker can continue the conversation, also from an earlier turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

#: Maximum number of turns to restore, newest first; earlier ones are dropped.
TURNS = 200


class Message(NamedTuple):
    role: str
    text: str


def messages_until(address: str, outcome_at: Callable[[str], str | None]) -> list[Message]:
    """Returns the prompts and answers of an agent's conversation, up to the step at an address.

    >>> kept = {"a": '{"word": "succeeded", "prompt": "Hi", "text": "Hello"}',
    ...         "b": '{"word": "succeeded", "prompt": "More", "text": "Yes",'
    ...              ' "thread": {"conversation": "x|", "id": "b", "after": "a"}}'}
    >>> [message.text for message in messages_until("b", kept.get)]
    ['Hi', 'Hello', 'More', 'Yes']
    """
    turns: list[Message] = []
    seen = set[str]()
    at: str | None = address
    while at is not None and at not in seen and len(seen) < TURNS:
        seen.add(at)
        kept = outcome_at(at)
        outcome = json.loads(kept) if kept is not None else {}
        if outcome:
            answer = outcome.get("raw") or outcome.get("text")
            pair = (("assistant", answer), ("user", outcome.get("prompt")))
            turns += [Message(role, text) for role, text in pair if text]
        at = (outcome.get("thread") or {}).get("after")
    return turns[::-1]
