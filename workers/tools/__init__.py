"""Tools: the built-in ones, users' Python functions, and the body of a tool step."""

from __future__ import annotations

from workers.tools.tool import TOOLS, Tool, use

__all__ = ["TOOLS", "Tool", "use"]
