"""Research workflows against a real API on a real Redis; nobody but the test carries out steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from leadhand.research import AgentConfig, ResearchAgent, Workflow, WorkflowStep
from tests.http_world import TOKEN, Served, served


@pytest.fixture(scope="module")
def api(module_store_url: str) -> Iterator[Served]:
    with served(module_store_url) as running:
        yield running


class Research:
    """Makes agents whose states are in one folder."""

    def __init__(self, api: Served, folder: Path) -> None:
        self.api, self.folder = api, folder

    def agent(
        self,
        config: dict[str, Any] | None = None,
        *,
        more: dict[str, Any] | None = None,
        **tools: Any,
    ) -> ResearchAgent:
        given = {"state_dir": str(self.folder), "max_retries": 0, **(config or {})}
        return ResearchAgent(
            tools, AgentConfig(**given), url=self.api.url, token=TOKEN, **(more or {})
        )

    @property
    def states(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.json"))


@pytest.fixture
def research(api: Served, tmp_path: Path) -> Research:
    return Research(api, tmp_path / "agent")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def step(name: str, tool: str = "", **more: Any) -> WorkflowStep:
    """A step whose tool has its name, unless another one is named."""
    return WorkflowStep(name, tool or name, more.pop("arguments", {}), **more)


def flow(*steps: WorkflowStep, name: str = "papers") -> Workflow:
    return Workflow(name, "finds papers", list(steps))


Tool = Callable[..., Any]
