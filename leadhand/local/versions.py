"""The version of this Leadhand, and which versions may share a state folder.

A newer command replaces older services that are idle. An older command uses newer services, but
never starts older ones on data that newer ones have written.
"""

from __future__ import annotations

import hashlib
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from leadhand.local import state_dir as home_folder
from leadhand.local.errors import StackElsewhere
from leadhand.serve import server_root

#: The major version of the REST API; clients and services of one major version work together.
API = "1"
_FILE = "version.json"
_PACKAGES = ("leadhand", "api", "app", "tasks", "workers")
_CODE = frozenset({".py", ".lua"})


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
    fields = home_folder.read_fields(home / _FILE)
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
    if home_folder.read_fields(home / _FILE) != fields:
        home_folder.write_fields(home / _FILE, fields)


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
