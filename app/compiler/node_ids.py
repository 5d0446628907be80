"""Derives node ids and conversation keys from a flow's labels (pure)."""

from __future__ import annotations

import re

from app.domain.references import RESERVED

#: Names that have a meaning of their own in programs.
_TAKEN = RESERVED | {"do", "judge"}
_LONGEST = 64


def node_id(label: str | None, kind: str, index: int, *, prefix: str = "") -> str:
    """Makes the id of a node from its label, or from its kind and number if that is not usable.

    >>> node_id("Write the plan", "llm", 1), node_id(None, "llm", 3), node_id(None, "startLoop", 1)
    ('Write-the-plan', 'llm3', 'loop1')
    >>> node_id("do", "llm", 2), node_id("42", "llm", 2)
    ('llm2', 'llm2')
    >>> node_id(None, "llm", 1, prefix="if2-then-")
    'if2-then-llm1'
    """
    word = "loop" if kind == "startLoop" else kind
    own = re.sub(r"[^A-Za-z0-9_-]+", "-", label or "").strip("-")[:40]
    if re.match(r"[A-Za-z]", own) and own not in _TAKEN:
        return own
    return f"{prefix}{word}{index}"[-_LONGEST:].lstrip("-0123456789")


def conversation(agent: str, type_: str, identifier: str) -> str:
    """Returns the key of a conversation, made of its agent, agentType and identifier.

    >>> conversation("claude", "claude", "main"), conversation("claude", "planner", "main")
    ('claude|main', 'claude:planner|main')
    """
    return f"{agent}|{identifier}" if agent == type_ else f"{agent}:{type_}|{identifier}"
