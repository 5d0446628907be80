"""What an agent tells a hook on standard input (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from leadhand.models.guards import AgentEvent
from leadhand.models.patterns import AGENT_SESSION

#: A notification of Claude Code that it waits for its user, by its type or its text.
_IDLE = ("idle_prompt", "waiting for your input")


class HookEvent(NamedTuple):
    """A hook's input, as far as guards need it."""

    name: str
    agent_session: str
    #: The user's prompt: Claude Code's prompt_id, or Codex's turn_id.
    prompt_id: str | None
    #: Whether a hook has blocked a stop of this prompt before.
    is_continued: bool
    folder: Path
    fields: Mapping[str, object]

    def as_agent_event(self) -> AgentEvent | None:
        """Convert a hook's event to the event for a guard: prompt, idle or end; None for others."""
        if self.name == "UserPromptSubmit":
            return AgentEvent(event="prompt", prompt_id=self.prompt_id)
        if self.name == "SessionEnd":
            return AgentEvent(event="end")
        text = f"{self.fields.get('notification_type')} {self.fields.get('message')}"
        if self.name == "Notification" and any(word in text for word in _IDLE):
            return AgentEvent(event="idle")
        return None


class EventUnfit(ValueError):
    """Standard input is not the JSON of a hook that a guard understands."""


def parse_event(fields: Mapping[str, object], env: Mapping[str, str]) -> HookEvent:
    """Parses the fields that an agent passes to a hook. Raises EventUnfit for a bad session id.

    >>> event = parse_event({"session_id": "s-1", "hook_event_name": "Stop", "cwd": "/w"}, {})
    >>> event.agent_session, event.prompt_id, event.is_continued, str(event.folder)
    ('s-1', None, False, '/w')
    """
    session = str(fields.get("session_id") or "")
    if not re.fullmatch(AGENT_SESSION, session):
        raise EventUnfit(f"session_id is {session!r}: a hook's JSON names the agent's session")
    prompt = fields.get("prompt_id") or fields.get("turn_id")
    folder = env.get("CLAUDE_PROJECT_DIR") or str(fields.get("cwd") or ".")
    return HookEvent(
        name=str(fields.get("hook_event_name") or ""),
        agent_session=session,
        prompt_id=None if prompt is None else str(prompt)[:128],
        is_continued=fields.get("stop_hook_active") is True,
        folder=Path(folder),
        fields=fields,
    )
