"""Redacts the values of an MCP server's variables in texts that leave its client."""

from __future__ import annotations

from collections.abc import Mapping

from app.redaction import without_keys
from workers.registry.tool_entry import McpServer

#: Shorter values occur in ordinary text.
_SHORTEST = 8


def without_values(text: str, entry: McpServer, held: Mapping[str, str]) -> str:
    r"""Redacts the values of a server's environment variables, and other credentials.

    >>> entry = McpServer(command="shop", needs_env=("KEY",))
    >>> without_values("the key hush-hush is wrong", entry, {"KEY": "hush-hush\n"})
    'the key [redacted] is wrong'
    """
    values = [held.get(name, "") for name in entry.variables]
    # White space in a server's last words is folded.
    forms = {form for one in values for form in (one, one.strip(), " ".join(one.split()))}
    forms |= {line.strip() for one in values for line in one.splitlines()}
    return without_keys(text, [form for form in forms if len(form) >= _SHORTEST])
