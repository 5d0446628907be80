"""Detects a Codex run whose own sandbox started none of its commands.

Codex then changes nothing and exits with 0, and its answer may claim success. Some versions
print each command with its error. Others print none of them: only the rollout file of the thread
has them. An agent of any name may run Codex, so events are recognised by their form.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import JsonValue

from workers.agents.codex_rollout import find_sandbox_error

#: The prefix of errors from the sandbox program that Codex uses on Linux.
_SANDBOX = "bwrap: "
_HINT = (
    "set CODEX_HOME to a folder outside of the temporary directory and run Codex where bubblewrap"
    " works, or add --sandbox danger-full-access to its entry if something else confines it"
)


class CodexTools:
    """Tracks whether any tool call of one run worked; `home` is CODEX_HOME, where it is known."""

    def __init__(self, home: Path | None = None) -> None:
        self._home = home
        self._thread: str | None = None
        self._has_worked = False
        self._error: str | None = None

    def take(self, event: JsonValue) -> None:
        """Record the thread id or a completed tool call from a Codex event; ignore other events."""
        if isinstance(event, dict) and event.get("type") == "thread.started":
            self._thread = str(event.get("thread_id"))
        if not isinstance(event, dict) or event.get("type") != "item.completed":
            return
        item = event.get("item")
        if not isinstance(item, dict):
            return
        if item.get("type") == "command_execution":
            self._take_command(item)
        elif item.get("type") in ("file_change", "mcp_tool_call"):
            self._has_worked = self._has_worked or item.get("status") == "completed"

    def find_fault(self) -> str | None:
        """Return why no tool call worked, with the fix; None if one worked or none was made."""
        if self._has_worked:
            return None
        error = self._error or self._find_unreported()
        if error is None:
            return None
        return f"its sandbox started none of its commands ({error}); {_HINT}"

    def _find_unreported(self) -> str | None:
        if self._home is None or self._thread is None:
            return None
        return find_sandbox_error(self._home, self._thread)

    def _take_command(self, item: dict[str, JsonValue]) -> None:
        output = str(item.get("aggregated_output") or "").strip()
        if item.get("status") == "failed" and output.startswith(_SANDBOX):
            self._error = output.splitlines()[0][:300]
        else:
            self._has_worked = True
