"""`leadhand up`: keeps this folder's services running in the foreground."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import click

_LOOK_S = 0.2


@click.command("up")
def up_command() -> int:
    """Run this folder's Redis, API and worker until Ctrl-C.

    Other commands start and end them by themselves; `up` is for keeping them. What they know is
    kept in .leadhand/: sessions that were cut off go on when the services are started again.
    """
    from leadhand.home import prepare
    from leadhand.settings import ClientSettings

    folder = (ClientSettings.from_env().home or Path.cwd()).absolute()
    home = prepare(folder / ".leadhand")
    try:
        while not _is_free(home):
            _keep_company(folder)
        return _supervise(folder, home)
    except KeyboardInterrupt:
        return 0


def _supervise(folder: Path, home: Path) -> int:
    """Supervise in this very process, so that whoever kills it kills all of its services."""
    from leadhand import supervisor

    threading.Thread(target=_tell_when_up, args=(home,), daemon=True).start()
    return supervisor.main(["--home", str(home), "--cwd", str(folder), "--foreground"])


def _keep_company(folder: Path) -> None:
    """Keep services that somebody else's supervisor runs, for as long as it does."""
    from leadhand.cli.connecting import tell
    from leadhand.embedded import ensure

    with ensure(folder, say=tell) as connection:
        _tell_where(connection.url, connection.home)
        tell("another command has started them; this one keeps them")
        while not _is_free(connection.home):
            time.sleep(_LOOK_S)
    tell("they have ended; starting them anew")


def _is_free(home: Path) -> bool:
    """Whether no supervisor lives."""
    from leadhand import locks

    lock = locks.open_lock(home / "supervisor.lock")
    try:
        return locks.take(lock)
    finally:
        os.close(lock)


def _tell_when_up(home: Path) -> None:
    from leadhand.home import read_fields

    while not (run := read_fields(home / "run.json")):
        time.sleep(_LOOK_S)
    _tell_where(str(run["url"]), home)


def _tell_where(url: str, home: Path) -> None:
    click.echo(f"leadhand is up at {url} (its token is in {home / 'run.json'})")
    click.echo("Ctrl-C ends it; sessions are kept and go on when it is started again")
