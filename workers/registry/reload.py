"""Reloads a worker's agents when their files change."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from leadhand.file_stamp import Stamp
from leadhand.models.approvals import NONE_NEEDED, Approvals
from workers.registry.agents import AgentBook
from workers.registry.sources import ON_DISK, Sources

log = logging.getLogger(__name__)


class AgentFiles:
    """The agents files of a worker, parsed again after a change.

    Running sessions keep the last valid version of an entry that has become invalid.
    """

    def __init__(
        self,
        files: Sequence[Path],
        approvals: Approvals = NONE_NEEDED,
        *,
        sources: Sources = ON_DISK,
        logs_faults: bool = False,
    ) -> None:
        self._sources = sources
        self._files = tuple(files)
        self._approvals = approvals
        self._logs_faults = logs_faults
        self._seen: list[Stamp] | None = None
        self._book: AgentBook | None = None

    def current(self) -> AgentBook:
        """Return the agents in the agents.toml files; reads all again first if one has changed."""
        # Taken before the files are read, so that a change during the read is noticed.
        seen = [*map(self._sources.stamp, self._files), self._approvals.stamp()]
        if self._book is None or seen != self._seen:
            self._book = AgentBook.load(self._files, self._book, self._approvals, self._sources)
            self._seen = seen
            for fault in self._book.faults if self._logs_faults else ():
                log.warning("agents file has a fault", extra={"fault": fault.public})
        return self._book
