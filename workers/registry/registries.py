"""The agents and tools of a worker, and those of the folders whose sessions it runs."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from app.core.environment import Definitions
from app.settings import Settings
from leadhand.file_stamp import Stamp
from leadhand.models.approvals import NONE_NEEDED, Approvals
from leadhand.models.folder_settings import FILES, TOOLS
from workers.registry.agents import AgentBook
from workers.registry.inline import InlineFunctions
from workers.registry.sources import ON_DISK, Sources
from workers.registry.tool_book import ToolBook, ToolFiles
from workers.registry.tool_servers import ServedTools
from workers.registry.tools import ToolCatalogue

log = logging.getLogger(__name__)
#: The most folders whose definitions a process keeps.
KEPT = 32


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


class Registry(NamedTuple):
    """The agents and tools for the sessions of a folder."""

    agents: AgentFiles
    shelf: ToolCatalogue
    #: The folder of the definitions; None for the worker's own registry.
    folder: Path | None = None

    def servers(self) -> ToolBook:
        """Return a book of the MCP servers that are declared here; of a folder, only its own."""
        book, folder = self.shelf.book, self.folder
        own = {n: s for n, s in book.servers.items() if folder in (None, book.folders.get(n))}
        return ToolBook(own, {name: book.folders[name] for name in own})


class Registries:
    """Builds the registry of each folder once; its definitions come with the session."""

    def __init__(self, settings: Settings, folder: Path, *, logs_faults: bool = False) -> None:
        self._settings = settings
        #: For the sockets of MCP servers.
        self.folder = folder
        self._logs_faults = logs_faults
        self._kept = OrderedDict[str, Registry]()
        self._inline = InlineFunctions(settings.tools)
        #: The worker's own.
        self.base = self._build(None)

    def of(self, definitions: Definitions | None) -> Registry:
        """Return the agents and tools for sessions with these definitions; None: the worker's."""
        if definitions is None:
            return self.base
        found = self._kept.pop(definitions.mark, None) or self._build(definitions)
        self._kept[definitions.mark] = found
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found

    def servers_of(self, definitions: Definitions) -> Path:
        """Return the folder for the sockets of the MCP servers of these definitions."""
        return self.folder / definitions.mark[:8]

    def _build(self, definitions: Definitions | None) -> Registry:
        settings, sources = self._settings, Sources(definitions)
        files, tools = [*settings.agents], [*settings.tools]
        approvals, folder = NONE_NEEDED, None
        if definitions is not None:
            folder = Path(definitions.folder)
            files.append(folder / FILES[0])
            tools += [folder / TOOLS] if definitions.functions else []
            approvals = Approvals(folder, settings.approvals, strict=definitions.approved_only)
        declared = ToolFiles(
            files,
            approvals,
            tool_folders=settings.tools,
            sources=sources,
            logs_faults=self._logs_faults,
        )
        served = ServedTools(self.folder)
        if definitions is not None:
            served.add_folder(
                self.servers_of(definitions),
                owns=lambda name: declared.current().folders.get(name) == folder,
            )
        return Registry(
            AgentFiles(files, approvals, sources=sources, logs_faults=self._logs_faults),
            ToolCatalogue(tools, declared, served, self._inline, approvals),
            folder,
        )
