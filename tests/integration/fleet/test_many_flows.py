"""A hundred flows of twenty steps at once on two workers: all end, each with its turns in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadhand.flows.documents import FlowRun
from tests.fleet import Fleet
from tests.flows import llm
from tests.waiting import wait_until

FLOWS, STEPS = 100, 20
AGENTS = """
[agents.echo]
command = ["/bin/cat"]
"""


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    (tmp_path / "agents.toml").write_text(AGENTS)
    (tmp_path / "flows").mkdir()
    steps = [llm(f"this is {n}", agentType="echo", label=f"s{n}") for n in range(1, STEPS + 1)]
    (tmp_path / "flows/long.json").write_text(json.dumps({"steps": steps}))
    env = {"LEADHAND_AGENTS": str(tmp_path / "agents.toml"), "LEADHAND_CONCURRENCY": "4",
           "LEADHAND_FLOWS": str(tmp_path / "flows")}  # fmt: skip
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=30, **env)
    fleet.worker("one")
    fleet.worker("two")
    yield fleet
    fleet.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_hundred_flows_at_once_end_with_their_turns_in_order(fleet: Fleet) -> None:
    sessions = [fleet.engine.submit.flow("long", FlowRun()).session for _ in range(FLOWS)]
    expected = [f"s{n}" for n in range(1, STEPS + 1)]

    def at_work() -> list[str]:
        return [s for s in sessions if fleet.engine.queries.session(s).status != "completed"]

    wait_until(lambda: not at_work(), timeout=1100)
    for session in sessions:
        events = fleet.engine.queries.events(session, limit=1000)
        assert [e.address for e in events if e.type == "step.settled"] == expected
        said = fleet.engine.queries.transcript(session, limit=500, cursor=None).items
        assert [one.label for one in said if one.role == "assistant"] == expected
        assert [one.seq for one in said] == list(range(1, len(said) + 1))
        assert {e.fields["word"] for e in events if e.type == "step.settled"} == {"succeeded"}
