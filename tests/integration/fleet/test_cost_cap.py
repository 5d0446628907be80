"""A real worker, and agents that are shell scripts and print what they cost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet import Fleet
from tests.waiting import wait_until

AGENTS = """
[agents.spender]
command = ["sh", "spender.sh"]
output = "lines"
answer = "answer"
usage = {cost_usd = "total", input_tokens = "read"}
running = {cost_usd = "so_far", input_tokens = "reads"}

[agents.saver]
command = ["sh", "saver.sh"]
output = "lines"
answer = "answer"
usage = {cost_usd = "total", input_tokens = "read", output_tokens = "wrote"}
"""
#: Reports its cost, then works for longer than any test waits.
SPENDER = """
echo $$ > spender.pid
echo '{"so_far": 0.2}'
echo '{"so_far": 0.7, "reads": 60}'
sleep 300
echo '{"answer": "done", "total": 9}'
"""
SAVER = """
echo '{"answer": "done", "total": 0.125, "read": 40, "wrote": 2}'
"""


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    agents = tmp_path / "agents.toml"
    for name, text in {"agents.toml": AGENTS, "spender.sh": SPENDER, "saver.sh": SAVER}.items():
        (tmp_path / name).write_text(text)
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=3, LEADHAND_AGENTS=str(agents))
    try:
        fleet.worker("w1")
        yield fleet
    finally:
        fleet.close()


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.timeout(120)
def test_a_cost_cap_ends_an_agent_as_its_own_output_tells_of_the_cost(fleet: Fleet) -> None:
    session = fleet.submitted("true", doer={"agent": "spender"}, budget={"cost_usd": 0.5})
    result = fleet.ended(session, timeout=60)
    assert result.status == "failed"
    assert result.reason is not None
    assert result.reason.code == "budget"
    assert result.reason.text == "its budget is used up: 0.7000 of 0.5000 USD"
    assert result.cost_usd == 0.7
    pid = int((fleet.folder / "spender.pid").read_text())
    wait_until(lambda: not is_there(pid), timeout=20)


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_a_token_cap_ends_an_agent_as_its_own_output_tells_of_its_tokens(fleet: Fleet) -> None:
    session = fleet.submitted("true", doer={"agent": "spender"}, budget={"tokens": 50})
    result = fleet.ended(session, timeout=60)
    assert result.status == "failed"
    assert result.reason is not None
    assert result.reason.text == "its budget is used up: 60 of 50 tokens"
    assert (result.input_tokens, result.cost_usd) == (60, 0.7)
    pid = int((fleet.folder / "spender.pid").read_text())
    wait_until(lambda: not is_there(pid), timeout=20)


@pytest.mark.timeout(120)
def test_cost_and_what_was_said_are_kept(fleet: Fleet) -> None:
    session = fleet.submitted("true", doer={"agent": "saver"}, budget={"cost_usd": 0.5})
    result = fleet.ended(session, timeout=60)
    assert (result.verdict, result.cost_usd, result.input_tokens) == ("accept", 0.125, 40)
    (entry,) = result.history
    assert (entry.cost_usd, entry.output_tokens) == (0.125, 2)
    said = fleet.engine.queries.transcript(session).items
    assert [(one.role, one.agent) for one in said] == [("user", "saver"), ("assistant", "saver")]
    assert (said[1].text, said[1].cost_usd) == ("done", 0.125)
