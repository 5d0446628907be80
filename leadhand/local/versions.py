"""Which versions and settings may share a state folder and its running services.

A newer command replaces older services that are idle. An older command uses newer services, but
never starts older ones on data that newer ones have written.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from leadhand.local import processes, user_state
from leadhand.local.api_probe import LocalApi
from leadhand.local.environment import differing
from leadhand.local.errors import StackElsewhere
from leadhand.local.services import end_services
from leadhand.serve import server_root

#: The major version of the REST API; clients and services of one major version work together.
API = "1"
_FILE = "version.json"
_PACKAGES = ("leadhand", "api", "app", "tasks", "workers")
_CODE = frozenset({".py", ".lua"})
_TOLD = "told.json"
_LOOK_S = 0.05
#: How often the lock of commands is tried: a supervisor that looks holds it for a moment.
_TRIES = 10


def own_version() -> str:
    """The version of the installed Leadhand; 0 if it is not installed."""
    try:
        return version("leadhand")
    except PackageNotFoundError:
        return "0"


def is_newer(one: str, other: str) -> bool:
    """Whether a version is newer than another.

    What is no version, such as that of services too old to say it, is older than all others.

    >>> is_newer("0.10.0", "0.9.2"), is_newer("1.0", "1.0rc1"), is_newer("0.1.0", "")
    (True, True, True)
    """
    from packaging.version import Version

    return one != other and Version(_known(one)) > Version(_known(other))


def code_stamp() -> str:
    """A digest of the names, sizes and times of the installed code.

    It changes with an upgrade in place.
    """
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for folder in {package, *(server_root(package) / name for name in _PACKAGES)}:
        digest.update(_stamp_of(folder).encode())
    return digest.hexdigest()


def require_not_downgrade(home: Path) -> None:
    """Raise StackElsewhere if a newer Leadhand has used the state folder."""
    fields = user_state.read_fields(home / _FILE)
    used, own = str(fields.get("version", "")), own_version()
    if is_newer(used, own):
        why = f"Leadhand {used} has written their data, and this is {own}"
        hint = (
            f"use that of {fields.get('python')}, or name another state folder with LEADHAND_HOME"
        )
        raise StackElsewhere(str(home), why, hint)


def record_version(home: Path) -> None:
    """Record this version as the one that uses the state folder from now on."""
    fields = {"version": own_version(), "python": sys.executable}
    if user_state.read_fields(home / _FILE) != fields:
        user_state.write_fields(home / _FILE, fields)


def _stamp_of(folder: Path) -> str:
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in _CODE:
            stat = path.stat()
            found.append(f"{path}:{stat.st_size}:{stat.st_mtime_ns}")
    return "\n".join(found)


def _known(text: str) -> str:
    from packaging.version import VERSION_PATTERN

    return text if re.fullmatch(VERSION_PATTERN, text, re.VERBOSE | re.IGNORECASE) else "0.dev0"


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
        while not processes.share(commands_lock):
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
        if processes.take(lock):
            return True
        time.sleep(_LOOK_S)
    while not processes.share(lock):  # a failed conversion gives the shared lock up
        time.sleep(_LOOK_S)
    return False


def _is_news(home: Path, what: str) -> bool:
    if user_state.read_fields(home / _TOLD).get("what") == what:
        return False
    with user_state.fit(home):
        user_state.write_fields(home / _TOLD, {"what": what})
    return True


def _api_of(run: Mapping[str, str]) -> LocalApi:
    port = int(run["url"].rpartition(":")[2])
    return LocalApi(port, run["token"], proof_key=run.get("proof_key", ""))
