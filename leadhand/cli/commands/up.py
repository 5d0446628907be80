"""`leadhand up`: runs the user's services in the foreground."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import click

_LOOK_S = 0.2


@click.command("up")
def up_command() -> int:
    """Run Leadhand's Redis, API and worker until Ctrl-C.

    Other commands start the services on demand; `up` keeps them running, until `leadhand down`.
    They serve all folders of this user. Interrupted sessions continue when the services are started
    again.
    """
    from leadhand.cli.connect import tell
    from leadhand.local.running import ENDED_FOR_GOOD
    from leadhand.local.state_dir import prepare
    from leadhand.local.user_state import state_folder
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
    from leadhand.cli.connect import tell
    from leadhand.local.connect import ensure

    with ensure(home, say=tell) as connection:
        _tell_where(connection.url, connection.home)
        tell("another command has started the services; this command keeps them running")
        while not _is_free(connection.home):
            time.sleep(_LOOK_S)


def _is_free(home: Path) -> bool:
    """Whether no supervisor runs."""
    from leadhand.local.running import find_running

    return find_running(home) is None


def _tell_when_up(home: Path) -> None:
    from leadhand.local.state_dir import read_fields

    while not (run := read_fields(home / "run.json")):
        time.sleep(_LOOK_S)
    _tell_where(str(run["url"]), home)


def _tell_where(url: str, home: Path) -> None:
    click.echo(f"leadhand is up at {url} (its token is in {home / 'run.json'})")
    click.echo("Ctrl-C ends it; sessions are kept and continue when it is started again")
