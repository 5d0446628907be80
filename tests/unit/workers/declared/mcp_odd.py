"""An MCP server that lists malformed tools among good ones, over standard input and output."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOLS = [
    {"name": "good", "inputSchema": {"type": "object"}},
    {"name": "bare"},
    {"description": "it has no name", "inputSchema": {"type": "object"}},
    "no tool",
    {"name": "fine", "inputSchema": {"type": "object"}},
]


def answer(request: dict[str, Any]) -> dict[str, Any] | None:
    match request.get("method"):
        case "initialize":
            version = request["params"]["protocolVersion"]
            about = {"name": "odd", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return {"content": [{"type": "text", "text": "done"}]}
        case _:
            return None


def main() -> None:
    """Answers requests until standard input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = answer(request)
            unknown = {"error": {"code": -32601, "message": "there is no such method"}}
            reply = unknown if result is None else {"result": result}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
