"""The MCP server: Leadhand's API as tools that agents can call, over standard input and output."""

from __future__ import annotations
