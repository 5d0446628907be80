"""The MCP servers of a ToolWorld, with their client processes."""

from __future__ import annotations

import os

from app.core.outcomes import Outcome
from leadhand.models.views.fleet import ToolHere
from tests.unit.workers.declared.tool_world import ToolWorld
from tests.waiting import wait_until
from workers.registry.tool_book import ToolFiles
from workers.registry.tool_servers import ServedTools
from workers.registry.tools import ToolCatalogue
from workers.tool_servers import manager
from workers.tool_servers.manager import ToolServers


class Servers:
    """A world whose MCP servers run."""

    def __init__(self, world: ToolWorld, hosts: tuple[str, ...] = ()) -> None:
        self.world = world
        folder = manager.servers_folder(os.getpid())
        files = ToolFiles([world.folder / "agents.toml"])
        world.shelf = ToolCatalogue(declared=files, served=ServedTools(folder))
        self.running = ToolServers(folder, files.current, hosts=hosts)
        self.running.start()

    def listed(self) -> dict[str, ToolHere]:
        return {tool.name: tool for tool in self.world.shelf.tools()}

    def ready(self, name: str = "shop.add") -> dict[str, ToolHere]:
        wait_until(lambda: name in self.listed(), timeout=40)
        return self.listed()

    def call(self, tool: str, **more) -> Outcome:
        return self.world.call(tool, **more)
