"""The tools that tools.toml declares: commands, HTTP requests and MCP servers."""

from __future__ import annotations
