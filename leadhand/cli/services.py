"""`leadhand up`, `down`, `restart`, `status`, `worker`, `api` and `mcp`: services."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import click

from leadhand.cli.connect import tell
from leadhand.cli.exit_codes import DONE, HALTED
from leadhand.cli.render.tables import echo_json, plural
from leadhand.cli.render.times import age, duration
from leadhand.models.text import plain

_LOOK_S = 0.2


@click.command("up")
def up_command() -> int:
    """Run Leadhand's Redis, API and worker until Ctrl-C.

    Other commands start the services on demand; `up` keeps them running, until `leadhand down`.
    They serve all folders of this user. Interrupted sessions continue when the services are started
    again.
    """
    from leadhand.local.services import ENDED_FOR_GOOD
    from leadhand.local.user_state import prepare, state_folder
    from leadhand.settings import environment

    home = state_folder(environment())
    prepare(home)
    try:
        while not _is_free(home):
            _stay_attached(home)
            if (home / ENDED_FOR_GOOD).exists():
                tell("another command has ended the services; `leadhand up` starts them again")
                return 0
            tell("the services have ended; starting them again")
        return _supervise(home)
    except KeyboardInterrupt:
        return 0


def _supervise(home: Path) -> int:
    """Run the supervisor in this process, so that a kill of it also ends the services."""
    from leadhand.local import supervisor

    threading.Thread(target=_tell_when_up, args=(home,), daemon=True).start()
    return supervisor.main(["--home", str(home), "--foreground"])


def _stay_attached(home: Path) -> None:
    """Stay attached to services that another process's supervisor runs, until it ends."""
    from leadhand.local.connect import ensure

    with ensure(home, say=tell) as connection:
        _tell_where(connection.url, connection.home)
        tell("another command has started the services; this command keeps them running")
        while not _is_free(connection.home):
            time.sleep(_LOOK_S)


def _is_free(home: Path) -> bool:
    """Whether no supervisor runs."""
    from leadhand.local.services import find_running

    return find_running(home) is None


def _tell_when_up(home: Path) -> None:
    from leadhand.local.user_state import read_fields

    while not (run := read_fields(home / "run.json")):
        time.sleep(_LOOK_S)
    _tell_where(str(run["url"]), home)


def _tell_where(url: str, home: Path) -> None:
    click.echo(f"leadhand is up at {url} (its token is in {home / 'run.json'})")
    click.echo("Ctrl-C ends it; sessions are kept and continue when it is started again")


@click.command("down")
def down_command() -> int:
    """End your services: the worker, the API and Redis.

    Running steps are handed back. Sessions that are active continue when the services are started
    again, as any command does. With LEADHAND_URL there is nothing to end.
    """
    from leadhand.local.user_state import state_folder
    from leadhand.settings import environment

    if end_services_here(state_folder(environment()), for_good=True):
        click.echo("the services have ended")
    else:
        click.echo("no services run")
    return 0


def end_services_here(home: Path, *, for_good: bool = False) -> bool:
    """End the services of a state folder and say what continues later; False if none run."""
    from leadhand.local.services import end_services, find_running

    running = find_running(home)
    if running is None:
        return False
    at_work = _count_active(running.run)
    if at_work:
        verb = "continues" if at_work == 1 else "continue"
        tell(f"{plural(at_work, 'active session')} {verb} when the services start again")
    return end_services(home, hands_back=at_work != 0, for_good=for_good, say=tell)


def _count_active(run: Mapping[str, str]) -> int | None:
    """How many sessions are at work, at most a page; None if the API does not answer."""
    from leadhand.client.client import Client
    from leadhand.errors import LeadhandError
    from leadhand.local.api_probe import WANTS_LIFE, proves_itself

    url, key = run.get("url"), run.get("proof_key")
    if not url:
        return None
    try:
        # Another program may have the port by now: it does not get the token.
        if key and not proves_itself(urlsplit(url).port or 0, key):
            return None
        with Client(url, run.get("token", ""), timeout_s=5.0, patience_s=0.0) as client:
            return len(client.sessions(status=WANTS_LIFE, limit=500).items)
    except (LeadhandError, OSError):
        return None


@click.command("restart")
def restart_command() -> int:
    """Restart your services, with this version and these settings.

    Settings are read from config.toml of your configuration, and from LEADHAND_ variables of this
    command. Active sessions continue. Services without work end 30 minutes after the last command
    (LEADHAND_LINGER), and the next command starts them again with its own variables.
    """
    from leadhand.local.connect import ensure
    from leadhand.local.user_state import state_folder
    from leadhand.settings import environment

    end_services_here(state_folder(environment()))
    with ensure(say=tell) as connection:
        click.echo(f"the services run at {connection.url}")
    return 0


@click.command("status")
@click.option("--folder", "folder_only", is_flag=True, help="Print the state folder and no more.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def status_command(*, folder_only: bool, as_json: bool) -> int:
    """Show your services: their state folder, address and process. Starts nothing.

    Exits with 2 if they do not run. The API's token is in run.json of the state folder.
    """
    from leadhand.local.services import find_running
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


@click.command("worker")
@click.option("--concurrency", type=click.IntRange(1, 256), help="Attempts at once (4).")
@click.option("--place", metavar="NAME", help="The worker's place (local).")
@click.option("--name", metavar="NAME", help="The worker's name (HOST-PID).")
def worker_command(*, concurrency: int | None, place: str | None, name: str | None) -> int:
    """Run a worker of a fleet, on the Redis of LEADHAND_REDIS_URL."""
    _become(
        "worker",
        LEADHAND_CONCURRENCY=concurrency,
        LEADHAND_PLACE=place,
        LEADHAND_WORKER_NAME=name,
    )


@click.command("api")
@click.option("--bind", metavar="HOST:PORT", help="The address to listen on (127.0.0.1:8765).")
def api_command(*, bind: str | None) -> int:
    """Run the API of a fleet, on the Redis of LEADHAND_REDIS_URL.

    LEADHAND_API_TOKEN is the bearer token that it accepts.
    """
    _become("api", LEADHAND_API_BIND=bind)


def _become(service: str, **settings: str | int | None) -> NoReturn:
    from leadhand.local.processes import only_ours, service_command
    from leadhand.settings import environment

    env = environment()
    if not env.get("LEADHAND_REDIS_URL"):
        raise click.ClickException(
            "LEADHAND_REDIS_URL is not set: name the Redis of the fleet, such as"
            " redis://:password@host:6379/0; `leadhand up` runs everything here without one"
        )
    given = {name: str(value) for name, value in settings.items() if value is not None}
    command = service_command(service, env)
    os.execve(command[0], command, only_ours(env) | given)  # noqa: S606 - an argv, no shell


@click.command("mcp")
def mcp_command() -> int:
    """Serve Leadhand's tools over MCP, on standard input and output.

    An agent's configuration starts it. Inside a session it has the session's own tools, such as
    report_status; elsewhere it uses LEADHAND_URL and LEADHAND_TOKEN, or the user's services.
    """
    import asyncio

    from leadhand.cli.connect import reach
    from leadhand.client.client import AsyncClient
    from leadhand.mcp.server import serve
    from leadhand.settings import ClientSettings

    session = ClientSettings.from_env().session
    with reach(needs_worker=True) as (url, token):
        asyncio.run(serve(AsyncClient(url, token, say=tell), session))
    return 0
