"""`leadhand down`: ends the user's services."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import click

from leadhand.cli.connect import tell
from leadhand.cli.render.tables import plural


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
    from leadhand.local.running import end_services, find_running

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
    from leadhand.local.api_probe import WANTS_LIFE
    from leadhand.local.prove_api import proves_itself

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
