"""Decides what a command does with services of another version, or with other settings."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from leadhand.local import file_locks
from leadhand.local import state_dir as home_folder
from leadhand.local.api_probe import LocalApi
from leadhand.local.errors import StackElsewhere
from leadhand.local.running import end_services
from leadhand.local.user_settings import differing
from leadhand.local.versions import API, is_newer, own_version

_TOLD = "told.json"
_LOOK_S = 0.05
#: How often the lock of commands is tried: a supervisor that looks holds it for a moment.
_TRIES = 10


def replace_if_older(home: Path, run: Mapping[str, str], commands_lock: int) -> bool:
    """End the running services if they are of an older version and idle; return if it did.

    The caller shares the lock of commands, and shares it again afterwards.
    """
    if not is_newer(own_version(), run.get("version", "")) or not _is_alone(commands_lock):
        return False
    try:
        if _api_of(run).has_live_session():
            return False
        end_services(home, hands_back=False)
    except OSError:
        return False
    finally:
        while not file_locks.share(commands_lock):
            time.sleep(_LOOK_S)
    return True


def require_usable(home: Path, run: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Raise StackElsewhere for services with another API version; report busy older ones once."""
    theirs, own = run.get("version", "unknown"), own_version()
    if run.get("api", API) != API:
        why = f"they are of version {theirs} with another API, and this is {own}"
        raise StackElsewhere(str(home), why, "`leadhand restart` starts those of this version")
    if is_newer(own, run.get("version", "")) and _is_news(home, f"{run.get('pid')} {own}"):
        say(
            f"the services are of version {theirs} and busy; "
            f"`leadhand restart` starts those of {own}"
        )


def compare_settings(
    run: Mapping[str, str], env: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Report by `say` which settings of this command differ from those of the running services."""
    if "settings" not in run:
        return
    names = differing(env, json.loads(run["settings"]))
    if names:
        verb = "differs" if len(names) == 1 else "differ"
        say(
            f"{', '.join(names)} {verb} from what the services use; `leadhand restart` applies "
            f"{'it' if len(names) == 1 else 'them'}"
        )


def _is_alone(lock: int) -> bool:
    """Whether no other command is attached; if so, this one has the exclusive lock."""
    for _ in range(_TRIES):
        if file_locks.take(lock):
            return True
        time.sleep(_LOOK_S)
    while not file_locks.share(lock):  # a failed conversion gives the shared lock up
        time.sleep(_LOOK_S)
    return False


def _is_news(home: Path, what: str) -> bool:
    if home_folder.read_fields(home / _TOLD).get("what") == what:
        return False
    with home_folder.fit(home):
        home_folder.write_fields(home / _TOLD, {"what": what})
    return True


def _api_of(run: Mapping[str, str]) -> LocalApi:
    port = int(run["url"].rpartition(":")[2])
    return LocalApi(port, run["token"], proof_key=run.get("proof_key", ""))
