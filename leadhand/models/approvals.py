"""Which definition files of a folder its user has approved, by path and content (decision 77).

The store is a JSON object: the path of each file, and the SHA-256 of its text in hexadecimal.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from leadhand.file_stamp import Stamp, stamp_of


class Approvals(NamedTuple):
    """Tells which definitions of a folder may apply; without a folder or a store all may."""

    #: The folder whose files need an approval, such as a clone of somebody's repository.
    folder: Path | None = None
    #: The file that has the approvals.
    store: Path | None = None

    def stamp(self) -> Stamp:
        """Return a fingerprint that changes with the file of approvals; empty without one."""
        return () if self.store is None else stamp_of(self.store)

    def lack(self, file: Path, text: str) -> bool:
        """Whether a definition file needs the user's approval, and this text of it has none."""
        if self.folder is None or self.store is None:
            return False
        if file.absolute().parent != self.folder.absolute():
            return False
        known = read_approvals(self.store)
        return known.get(approval_key(file)) != digest_of(text)

    @property
    def hint(self) -> str:
        """Return a hint for the user: the command that approves the files of the folder."""
        return f"look at it, then run `leadhand trust {self.folder}`"


#: For files that all apply, such as those of LEADHAND_AGENTS.
NONE_NEEDED = Approvals()


def read_approvals(store: Path) -> dict[str, str]:
    """Reads the approved digest of each definition file; empty if the store is unreadable."""
    try:
        fields = json.loads(store.read_text())
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}


def approval_key(file: Path) -> str:
    """Returns the key of a file in the store of approvals: the real folder and the file's own name.

    A link keeps its own name.
    """
    return str(file.parent.resolve() / file.name)


def digest_of(text: str) -> str:
    """Returns the SHA-256 digest (hex) of a file's text, which an approval records."""
    return hashlib.sha256(text.encode()).hexdigest()
