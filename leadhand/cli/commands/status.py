"""`leadhand status`: shows whether the user's services run, and where their state is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leadhand.cli.exit_codes import DONE, HALTED
from leadhand.cli.render.tables import echo_json
from leadhand.cli.render.times import age, duration
from leadhand.models.text import plain


@click.command("status")
@click.option("--folder", "folder_only", is_flag=True, help="Print the state folder and no more.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def status_command(*, folder_only: bool, as_json: bool) -> int:
    """Show your services: their state folder, address and process. Starts nothing.

    Exits with 2 if they do not run. The API's token is in run.json of the state folder.
    """
    from leadhand.local.running import find_running
    from leadhand.local.user_state import defining_folder, state_folder
    from leadhand.settings import current_folder, environment

    home = state_folder(environment())
    if folder_only:
        click.echo(str(home))
        return DONE
    running = find_running(home)
    folder = current_folder()
    defining = defining_folder(folder, environment()) if folder is not None else None
    facts = _facts(home, defining, {} if running is None else {"pid": running.pid, **running.run})
    if as_json:
        echo_json(facts)
    else:
        for line in _lines(facts, starts=running is not None and not running.run):
            click.echo(line)
    return DONE if facts["running"] else HALTED


def _facts(home: Path, defining: Path | None, run: dict[str, Any]) -> dict[str, Any]:
    names = ("pid", "url", "version", "python", "started_at", "linger_s")
    facts = {name: run.get(name) for name in names}
    pid, linger_s = facts["pid"], facts["linger_s"]
    shown = {
        **facts,
        "pid": int(pid) if pid else None,
        "linger_s": float(linger_s) if linger_s else None,
    }
    definitions = str(defining) if defining is not None else None
    return {"folder": str(home), "definitions": definitions, "running": bool(run), **shown}


def _end(linger_s: float | None) -> str:
    """When the services end by themselves."""
    if linger_s is None:
        return "they run until `leadhand up` or `leadhand down` ends them"
    return (
        f"they end {duration(linger_s)} after the last command, if no session is active "
        "(LEADHAND_LINGER)"
    )


def _lines(facts: dict[str, Any], *, starts: bool) -> list[str]:
    folders = [f"state: {plain(facts['folder'])}"]
    if facts["definitions"]:
        folders.append(f"agents, flows and tools: those of {plain(facts['definitions'])}")
    if not facts["running"]:
        return ["the services do not run; the next command starts them", *folders]
    if starts:
        return [f"the services start or end, as process {facts['pid']}", *folders]
    since = age(facts["started_at"]) if facts["started_at"] else "?"
    return [
        f"the services run at {plain(facts['url'])}, started {since}, as process {facts['pid']}",
        _end(facts["linger_s"]),
        f"version: {plain(facts['version'] or 'unknown')} of {plain(facts['python'] or '?')}",
        *folders,
    ]
