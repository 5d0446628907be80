"""Names this machine, so that machines that share a home folder have services of their own.

The name is the content of /etc/machine-id. A container may have none: then one is made and kept
beside the state folders.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

SYSTEM = Path("/etc/machine-id")
KEPT = "machine-id"
_ID = re.compile(r"[0-9a-f]{32}")
_PRIVATE = 0o700


def machine_id(ours: Path, *, system: Path = SYSTEM) -> str:
    """Returns the machine's id, 32 hex digits; creates one in `ours` if there is none."""
    return _read(system) or _read(ours / KEPT) or _make(ours)


def _make(ours: Path) -> str:
    """Create the file with a new id; of several processes one wins, and all return its id."""
    ours.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    made, file = secrets.token_hex(16), ours / KEPT
    draft = ours / f"{KEPT}.{made}"
    draft.write_text(made + "\n")
    try:
        with suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink()
    kept = _read(file)
    if not kept:
        raise OSError(0, f"{str(file)!r} has no machine id; remove it")
    return kept


def _read(file: Path) -> str:
    """The id in a file; '' if it has none, as in a container or before a first boot."""
    try:
        found = file.read_text(errors="replace").strip()
    except OSError:
        return ""
    return found if _ID.fullmatch(found) else ""
