"""`leadhand guard`: the counters of Stop guards; and the hooks in an agent's settings."""

from __future__ import annotations

import copy
import math
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import click

from leadhand.cli.group import Group
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.models.views.shared import GuardView

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


@click.group("guard", cls=Group)
def guard_command() -> None:
    """Show and reset the counters of Stop guards."""


@guard_command.command("status")
@click.argument("agent_session", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status_command(*, agent_session: str | None, as_json: bool) -> int:
    """List the Stop guards that have not ended, or the one of an agent's session."""
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        found = client.guards(agent_session)
    if as_json:
        click.echo(found.model_dump_json())
        return 0
    click.echo(f"{found.total} guard{'' if found.total == 1 else 's'}, {found.active} active")
    for guard in found.items:
        click.echo("\n".join(_lines(guard)))
    return 0


@guard_command.command("reset")
@click.argument("agent_session", required=False)
@click.option("--all", "of_all", is_flag=True, help="Reset all guards.")
def reset_command(*, agent_session: str | None, of_all: bool) -> int:
    """Set the counters of Stop guards to 0, for one session of an agent or for all.

    A hook that runs is not waited for any more.
    """
    from leadhand.cli.connect import open_client

    if (agent_session is None) != of_all:
        raise click.UsageError("name a session of an agent, or give --all")
    with open_client(needs_worker=True) as client:
        count = client.reset_guards(agent_session).reset
    if count == 0:
        raise click.ClickException("no guard matches; `leadhand guard status` lists them")
    click.echo(f"reset {count} guard{'' if count == 1 else 's'}")
    return 0


def _lines(guard: GuardView) -> Iterator[str]:
    inside = f", inside session {guard.inside}" if guard.inside else ""
    runs = f", a hook runs since {guard.active_since}" if guard.active else ""
    yield f"{guard.agent_session}  session {guard.guard}{inside}{runs}"
    last = f", the last at {guard.last_stop_at}" if guard.last_stop_at else ""
    yield (
        f"    stops {guard.stops}, failed {guard.failed_stops}, blocked {guard.blocks}"
        f" ({guard.blocks_in_a_row} in a row), overridden {guard.overridden}{last}"
    )
    names = dict.fromkeys((*guard.last, *guard.retries))
    for name in names:
        failures = guard.retries.get(name, 0)
        again = f", {failures} failure{'' if failures == 1 else 's'} in a row" if failures else ""
        yield f"    {plain(name)}: {guard.last.get(name, 'not run')}{again}"
    if guard.limit_reached is not None:
        yield f"    limit reached: {guard.limit_reached}; `leadhand guard reset` begins again"


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
