"""The sentence about an agent whose tool calls all failed."""

from __future__ import annotations


def all_tools_failed(count: int) -> str:
    """Returns the message for an agent of which all tool calls failed.

    >>> all_tools_failed(1)
    'its only tool call failed'
    >>> all_tools_failed(3)
    'all of its 3 tool calls failed'
    """
    return "its only tool call failed" if count == 1 else f"all of its {count} tool calls failed"
