"""The clients of MCP servers, one process for each, and their connections."""

from __future__ import annotations
