"""The hooks of a guard in the settings of Claude Code and Codex, written and removed (pure)."""

from __future__ import annotations

import copy
import math
import shlex
from collections.abc import Mapping
from typing import Any, Literal

Agent = Literal["claude", "codex"]

#: The events whose hooks end a row of blocks. Codex has no notification and no end of a session.
_EVENTS: Mapping[Agent, tuple[str, ...]] = {
    "claude": ("UserPromptSubmit", "Notification", "SessionEnd"),
    "codex": ("UserPromptSubmit",),
}
#: By this a hook of a guard is recognised, whatever the program's path.
_MARKS = (" hook stop --timeout ", " hook event")
#: What the agent shows its user while the hook runs.
_STATUS = "Leadhand runs the gates of this stop"
#: Seconds for a hook that only records an event.
_EVENT_TIMEOUT_S = 30


def with_guard(
    settings: Mapping[str, Any], agent: Agent, program: str, timeout_s: float
) -> dict[str, Any]:
    """Returns a copy of an agent's settings with the hooks of a Stop guard; replaces older ones.

    >>> changed = with_guard({"model": "x"}, "codex", "/bin/leadhand", 60)
    >>> changed["hooks"]["Stop"][0]["hooks"][0]["command"]
    '/bin/leadhand hook stop --timeout 60'
    >>> without_guard(changed)
    {'model': 'x'}
    """
    changed = without_guard(settings)
    hooks = changed.setdefault("hooks", {})
    timeout = math.ceil(timeout_s)
    leadhand = shlex.quote(program)
    stop = f"{leadhand} hook stop --timeout {timeout}"
    _add(hooks, "Stop", stop, timeout, statusMessage=_STATUS)
    for event in _EVENTS[agent]:
        _add(hooks, event, f"{leadhand} hook event", _EVENT_TIMEOUT_S)
    return changed


def without_guard(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of an agent's settings without the hooks of a Stop guard; keeps others."""
    changed = copy.deepcopy(dict(settings))
    hooks = changed.get("hooks")
    if not isinstance(hooks, dict):
        return changed
    for event in list(hooks):
        if isinstance(hooks[event], list):
            groups = [_without_own(group) for group in hooks[event]]
            hooks[event] = [group for group in groups if group is not None]
            if not hooks[event]:
                del hooks[event]
    if not hooks:
        del changed["hooks"]
    return changed


def _add(hooks: dict[str, Any], event: str, command: str, timeout: int, **more: str) -> None:
    entry = {"type": "command", "command": command, "timeout": timeout, **more}
    hooks.setdefault(event, []).append({"hooks": [entry]})


def _without_own(group: Any) -> Any:
    """A group of hooks without those of a guard; None if it had no others."""
    if not isinstance(group, dict) or not isinstance(group.get("hooks"), list):
        return group
    others = [hook for hook in group["hooks"] if not _is_own(hook)]
    if len(others) == len(group["hooks"]):
        return group
    return {**group, "hooks": others} if others else None


def _is_own(hook: Any) -> bool:
    command = str(hook.get("command") or "") if isinstance(hook, dict) else ""
    words = command.partition(" hook ")
    return words[0].strip("'\"").endswith("leadhand") and any(
        mark in f"{command} " for mark in _MARKS
    )
