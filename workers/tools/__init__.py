"""The tools that a step may name, and the body of a tool step."""

from __future__ import annotations

from workers.tools.registry import TOOLS, Tool, use

__all__ = ["TOOLS", "Tool", "use"]
