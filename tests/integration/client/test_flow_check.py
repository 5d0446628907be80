"""What a flow lacks where it would be run: files, agents, tools and inputs, all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.engine import Engine
from app.fleet.inventory import text_of
from tests.engine.world import World
from tests.flows import ask, llm


@pytest.fixture
def engine(store_url: str) -> Engine:
    engine = World(store_url).engine
    told: dict[str, Any] = {
        "place": "local",
        "agents": ["able"],
        "agents_here": [{"name": "able", "kind": "command", "command": "able"}],
    }
    now_ms = engine.store.now_ms()
    text = text_of(told, now_ms=now_ms, holds_ms=10**9)
    engine.store.fleet().publish_inventory("w1", text)
    return engine


def test_all_that_keeps_a_flow_from_being_run_is_told(engine: Engine, tmp_path: Path) -> None:
    steps: list[Any] = [
        ask(),
        llm(agentType="nobody"),
        {"type": "command", "agentType": "able", "identifier": "i", "commandName": "gone"},
        {"type": "llm", "agentType": "able", "identifier": "i", "markdownFile": "gone.md"},
        {"type": "tool", "tool": "text:slug"},
        {"type": "subflow", "flowNames": ["inner", "absent"], "inputs": {"b": "x"}},
        llm(agentType="able", surprise=1),
    ]
    inner = {"steps": [llm(agentType="able")], "inputs": {"a": None}}
    given: Any = {"steps": steps, "flows": {"inner": inner}, "place": "far"}
    told = engine.flow_checks.check(given)
    assert [fault.path for fault in told.faults] == ["steps[6].surprise"], "fields come first"
    del steps[6]["surprise"]
    told = engine.flow_checks.check(given)
    assert not told.valid
    assert [fault.path for fault in told.faults] == [
        "steps[0]", "steps[2].commandName", "steps[3].markdownFile",
        "steps[5].flowNames", "place", "steps[0].agentType", "steps[1].agentType",
        "steps[4].tool", "steps[5].inputs.b", "steps[5].inputs.a",
    ]  # fmt: skip


def test_agents_are_not_asked_for_where_nobody_can_tell_whom_they_lead_to(engine: Engine) -> None:
    told = engine.flow_checks.check({"steps": [llm()], "agents": {"*": 1}})
    assert [fault.path for fault in told.faults] == ["agents.*"]
    assert engine.flow_checks.check({"steps": [llm()], "agents": {"*": "able"}}).valid
