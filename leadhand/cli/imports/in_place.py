"""Imports the sessions of a state folder that this user did not create here, and stops them all.

The folder's binding is marked as importing until every session in it is stopped. Meanwhile no
worker starts and no other command uses the folder. An import that was killed can be run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from leadhand.client.client import Client
from leadhand.errors import LeadhandError
from leadhand.local import state_dir as home_folder
from leadhand.local.api_probe import WANTS_LIFE
from leadhand.local.bindings import begin_import, find_binding, finish_import
from leadhand.local.connect import Connection, ensure
from leadhand.local.errors import StackElsewhere
from leadhand.local.redis_data import holds_data
from leadhand.local.running import find_running
from leadhand.models.views import SessionView

#: Seconds to wait for running attempts, whose leases have to expire.
_PATIENCE_S = 180.0
_LOOK_S = 0.2
_AT_ONCE = 500
#: Variables that name another Redis or API; the sessions are in the folder's own.
OTHER_REDIS = ("LEADHAND_REDIS_URL", "LEADHAND_BROKER_URL", "LEADHAND_URL")


def import_sessions(
    home: Path, env: Mapping[str, str], say: Callable[[str], None]
) -> list[SessionView] | None:
    """Stops all sessions in an imported state folder and returns them; None if it needs no import.

    Raises FolderUnfit, FolderNotBound, UserStateUnfit, StackNotStarted, StackElsewhere.
    """
    binding = find_binding(home, env)
    if binding is not None and not binding.importing:
        return None
    if binding is None:
        require_unused(home)
        begin_import(home, env)
    found = _stop_all(home, env, say) if holds_data(home) else []
    finish_import(home, env)
    return found


def _stop_all(home: Path, env: Mapping[str, str], say: Callable[[str], None]) -> list[SessionView]:
    own = {name: text for name, text in env.items() if name not in OTHER_REDIS}
    own["LEADHAND_LINGER"] = "0"
    with ensure(home, say=say, env=own, importing=True) as connection:
        found = stop_all(connection, say)
    wait_until_unused(connection.home)
    return found


def stop_all(connection: Connection, say: Callable[[str], None]) -> list[SessionView]:
    """Stops all sessions and waits for it; returns them. Raises StackElsewhere if one stays."""
    with Client(connection.url, connection.token, say=say) as client:
        give_up = time.monotonic() + _PATIENCE_S
        while live := client.sessions(status=WANTS_LIFE, limit=_AT_ONCE).items:
            if time.monotonic() > give_up:
                why = f"session {live[0].id!r} is still {live[0].status!r}"
                raise StackElsewhere(str(connection.home), why, "run `leadhand import` again")
            for session in live:
                _stop(client, session)
            time.sleep(_LOOK_S)
        return _all_sessions(client)


def _stop(client: Client, session: SessionView) -> None:
    try:
        client.stop(session.id)
    except LeadhandError:  # it ended, or another control is in progress; the caller looks again
        return


def _all_sessions(client: Client) -> list[SessionView]:
    page = client.sessions(limit=_AT_ONCE)
    found = list(page.items)
    while page.next is not None:
        page = client.sessions(limit=_AT_ONCE, cursor=page.next)
        found += page.items
    return found


def require_unused(home: Path) -> None:
    """Raise StackElsewhere while services run in a state folder."""
    if not _is_unused(home):
        pid = home_folder.read_fields(home / "run.json").get("pid", "unknown")
        why = f"process {pid} runs the services of this folder"
        raise StackElsewhere(str(home), why, "end it, then run `leadhand import` again")


def wait_until_unused(home: Path) -> None:
    """Wait until the services of a state folder end. Raises StackElsewhere on a timeout."""
    give_up = time.monotonic() + _PATIENCE_S
    while not _is_unused(home):
        if time.monotonic() > give_up:
            why = "the services that were started for the import did not end"
            raise StackElsewhere(str(home), why, "run `leadhand import` again")
        time.sleep(_LOOK_S)


def _is_unused(home: Path) -> bool:
    """Whether no supervisor holds the folder."""
    return find_running(home) is None
