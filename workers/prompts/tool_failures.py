"""The sentence about an agent whose tool calls all failed."""

from __future__ import annotations


def all_tools_failed(count: int) -> str:
    """The message that an agent made so many tool calls and all of them failed.

    >>> all_tools_failed(1)
    'its only tool call failed'
    >>> all_tools_failed(3)
    'all of its 3 tool calls failed'
    """
    return "its only tool call failed" if count == 1 else f"all of its {count} tool calls failed"
