"""The ways in which Redis can differ from the remembered store, with instructions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

#: How Redis differs from the store that a process remembers.
StoreState = Literal["known", "empty", "another", "older", "unreadable"]

#: What happened to the data, and what to do.
DIFFERENCES: Mapping[StoreState, tuple[str, str]] = {
    "known": ("holds the store that this process works with", ""),
    "empty": (
        "has lost its data: it is empty, and nothing is read or written",
        "restore a backup, or start without the old sessions: leadhand store accept --new",
    ),
    "another": (
        "holds another store than before, and nothing is read or written",
        "check LEADHAND_REDIS_URL, or accept this store: leadhand store accept --new",
    ),
    "older": (
        "went back to an older state, and nothing is read or written",
        "if a backup was restored, accept it: leadhand store accept",
    ),
    "unreadable": (
        "may hold another store than before: the file {file}, which keeps the store's id, cannot "
        "be read, and nothing is read or written",
        "see what Redis holds (leadhand store show), then accept it: leadhand store accept",
    ),
}
