"""The real claude and codex while their model is away, slow, or drops its answers."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.sessions.outputs import list_outputs
from tests import real_agents
from tests.acceptance.real_agents.test_real_agents import agent_step, world
from tests.acceptance.real_agents.test_real_agents import pytestmark as with_real_agents
from tests.model_server import Drip, Drop, Hang, Reply, Say
from tests.waiting import wait_until

pytestmark = [*with_real_agents, pytest.mark.slow]

__all__ = ["world"]


@contextmanager
def closed_port() -> Iterator[str]:
    """An address at which connections are refused."""
    with socket.socket() as taken:  # bound, so that no process listens there
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def retries(world, *, claude: int, codex: int) -> None:
    """Let the agents retry so often by themselves."""
    world.fleet.env["CLAUDE_CODE_MAX_RETRIES"] = str(claude)
    config = world.folder / "codex" / "config.toml"
    config.write_text(config.read_text().replace("_max_retries = 0", f"_max_retries = {codex}"))


def shown(world, session: str, address: str) -> str:
    views = list_outputs(world.engine, session, step=address, limit=1)
    return "".join(part.text for view in views for part in view.parts)


def explained(world, session: str) -> str:
    return " ".join(wait.text for wait in world.engine.explainer.explain(session).waits)


@pytest.mark.parametrize("agent", real_agents.PROGRAMS)
def test_a_model_that_is_away_is_named_while_the_agent_retries(world, agent: str) -> None:
    retries(world, claude=20, codex=1)
    with closed_port() as url:
        config = world.folder / "codex" / "config.toml"
        config.write_text(config.read_text().replace(world.model.url, url))
        world.fleet.env["ANTHROPIC_BASE_URL"] = url
        world.fleet.worker("one")
        session = world.run(agent_step("do", "How are you?", agent, timeout_s=25))
        wait_until(lambda: "! retry: " in shown(world, session, "do"), timeout=60)
        wait_until(lambda: "last trouble " in explained(world, session), timeout=20)
        text = explained(world, session)
        assert re.search(r"last output \d+ s ago; last trouble \d+ s ago: retry: .", text), text
        assert world.ended(session) == "failed"
    assert "timed out after 25 seconds" in world.engine.queries.result(session).reason.text


@pytest.mark.parametrize("agent", real_agents.PROGRAMS)
@pytest.mark.parametrize("reply", [Hang(), Drip()], ids=["silent", "endless"])
def test_a_model_that_is_slow_holds_no_step_past_its_deadline(world, agent, reply: Reply) -> None:
    world.scripted(lambda asked: reply)
    world.fleet.worker("one")
    session = world.run(agent_step("do", "How are you?", agent, timeout_s=12))
    pattern = r"; (?:last output \d+ s ago|no output yet)"
    wait_until(lambda: re.search(pattern, explained(world, session)), timeout=60)
    assert world.ended(session) == "failed"
    assert "timed out after 12 seconds" in world.engine.queries.result(session).reason.text
    assert world.model.left.wait(20), "the agent still waits for its model"


def drops_twice(world) -> None:
    """Break off the first two answers, and give the third one whole."""
    replies: list[Reply] = [Say("Better now."), Drop(), Drop()]
    world.scripted(lambda asked: replies.pop() if len(replies) > 1 else replies[0])
    world.fleet.worker("one")


def test_codex_shows_that_an_answer_broke_off_and_asks_again(world) -> None:
    retries(world, claude=0, codex=2)
    drops_twice(world)
    session = world.run(agent_step("do", "How are you?", "codex"))
    assert world.ended(session) == "completed"
    assert world.outcome(session, "do").text == "Better now."
    wait_until(lambda: "Better now." in shown(world, session, "do"), timeout=20)
    assert "! retry: 1/2" in shown(world, session, "do")
    assert "! retry: 2/2" in shown(world, session, "do")


def test_claude_shows_that_an_answer_broke_off_and_fails_with_it(world) -> None:
    drops_twice(world)
    session = world.run(agent_step("do", "How are you?", "claude"))
    assert world.ended(session) == "failed"
    wait_until(lambda: "API Error: " in shown(world, session, "do"), timeout=20)
    assert "API Error: " in world.engine.queries.result(session).reason.text
