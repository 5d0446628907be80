"""`leadhand guard`: the counters of Stop guards, and their reset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from leadhand.cli.group import Group
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.models.views.guards import GuardView


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
