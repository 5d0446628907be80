"""Agents on real workers: missing agents are refused at submit, and no secret is stored."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from app.errors import InvalidDocument
from tests.fleet import Fleet
from tests.flows import flow
from tests.waiting import wait_until

KEY, FORM = "a-key-of-the-test", "sk-ant-0123456789abcdefghij"
#: Prints its key on every channel: standard error, its text and its JSON.
GOSSIP = f"""
import json, os, sys
key = os.environ["GOSSIP_KEY"]
print(key, {FORM!r}, os.environ["LEADHAND_TOKEN"], file=sys.stderr)
print(json.dumps({{"says": f"it is {{key}} and {FORM}", "usd": 0.1}}))
sys.exit(int(os.environ["LEADHAND_ITERATION"]) - 1)
"""
AGENTS = f"""
[agents.gossip]
command = [{sys.executable!r}, "gossip.py"]
needs_env = ["GOSSIP_KEY"]
output = "lines"
answer = "says"
usage = {{cost_usd = "usd"}}
[agents.gone]
command = ["no-such-program-anywhere"]
[agents.keyless]
model = {{name = "m", key_env = "A_KEY_THAT_NOBODY_SET"}}
"""


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=6)
    (tmp_path / "gossip.py").write_text(GOSSIP)
    (tmp_path / "agents.toml").write_text(AGENTS)
    fleet.env |= {"LEADHAND_AGENTS": str(tmp_path / "agents.toml"), "GOSSIP_KEY": KEY}
    fleet.worker("one")
    yield fleet
    fleet.close()


def test_what_is_missing_is_told_at_submit_and_taken_once_it_is_there(fleet, tmp_path) -> None:
    for agent, why in (
        ("gone", "the program 'no-such-program-anywhere' is not found; install it"),
        ("keyless", "the variable A_KEY_THAT_NOBODY_SET is not set"),
    ):
        with pytest.raises(InvalidDocument, match=why) as refused:
            fleet.submitted("true", doer={"agent": agent})
        assert refused.value.field == "doer.agent"
    views = {agent.name: agent for agent in fleet.engine.fleet.agents()}
    assert (views["gone"].usable_at, views["gossip"].usable_at) == ([], ["local"])
    (tmp_path / "agents.toml").write_text(AGENTS.replace("no-such-program-anywhere", "true"))
    wait_until(
        lambda: next(a for a in fleet.engine.fleet.agents() if a.name == "gone").usable_at,
        timeout=20,
    )
    assert fleet.ended(fleet.submitted("true", doer={"agent": "gone"})).verdict == "accept"


@pytest.mark.slow
def test_a_broken_entry_stops_no_worker_and_is_named_at_submit(fleet, tmp_path) -> None:
    broken = "[agents.bad]\ncommand = 3\n"
    (tmp_path / "agents.toml").write_text(broken + AGENTS)
    fleet.worker("two")  # it starts with the broken file, and `one` reads it while it runs
    line = f"{tmp_path / 'agents.toml'}, line 2: agents.bad.command: write a list"

    def refusal(agent: str) -> str:
        try:
            fleet.submitted("true", doer={"agent": agent})
        except InvalidDocument as error:
            return str(error)
        return ""  # a worker has not read the file again yet

    wait_until(lambda: line in refusal("bad"), timeout=20)
    assert fleet.ended(fleet.submitted("true", doer={"agent": "gossip"})).verdict == "accept"
    (tmp_path / "agents.toml").write_text(AGENTS + "[agents.new")
    worst = f"{tmp_path / 'agents.toml'}, line {AGENTS.count(chr(10)) + 1}: is not TOML: "
    wait_until(lambda: worst in refusal("new"), timeout=20)
    wait_until(lambda: worst in refusal("gossip"), timeout=20)
    fleet.worker("three")
    assert fleet.ended(fleet.submitted("true", doer={"command": "true"})).verdict == "accept"


def test_no_secret_of_an_agent_is_kept_or_logged(fleet, tmp_path, redis_client) -> None:
    checker = {"prompt": f"Look for {FORM}.", "agent": "gossip"}
    session = fleet.submitted(checker, "false", doer={"agent": "gossip"}, max_iterations=2)
    result = fleet.ended(session)
    assert result.status == "failed"
    text = result.model_dump_json()
    assert "[redacted]" in text
    kept = "\n".join(_everything(redis_client, session))
    assert "it is [redacted] and [redacted]" in kept
    assert KEY not in kept
    assert KEY not in (tmp_path / "one.log").read_text()
    assert FORM not in text + (tmp_path / "one.log").read_text()


def test_no_secret_of_an_agent_stands_in_what_a_person_is_asked(fleet) -> None:
    asks = {"type": "human", "question": f"Is it {KEY}, or what?"}
    session = fleet.engine.submit.document(flow(asks)).session
    wait_until(
        lambda: "or what?" in fleet.engine.explainer.explain(session).model_dump_json(), timeout=20
    )
    shown = [
        fleet.engine.queries.session(session).model_dump_json(),
        fleet.engine.explainer.explain(session).model_dump_json(),
        str(fleet.engine.queries.transcript(session)),
        str(fleet.engine.queries.events(session, limit=1000)),
    ]
    for text in shown:
        assert KEY not in text
    assert "Is it [redacted], or what?" in shown[1]


def _everything(client: redis.Redis, session: str) -> Iterator[str]:
    """All that Redis holds of a session, as text."""
    for key in client.scan_iter(match=f"*{session}*", count=1000):
        kind = client.type(key)
        match kind:
            case "hash":
                yield str(client.hgetall(key))
            case "list":
                yield str(client.lrange(key, 0, -1))
            case "stream":
                yield str(client.xrange(key))
            case "zset":
                yield str(client.zrange(key, 0, -1))
            case "set":
                yield str(client.smembers(key))
            case _:
                yield str(client.get(key))
