"""Hints to sessions that run, read by the real claude, codex and a chat model."""

from __future__ import annotations

import pytest

from app.core.addresses import SessionRef
from app.sessions.inbox import list_messages, send_hint
from tests import real_agents
from tests.acceptance.real_agents.test_real_agents import WHO, World, world  # noqa: F401
from tests.acceptance.test_continued_conversations import (
    AGENTS,
    TASK,
    asked_by,
    count,
    ended,
    loop,
)
from tests.model_server import Asked, Hang, Reply, Say
from tests.waiting import wait_until

MISSING = real_agents.why_missing()
pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.timeout(150),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.slow,
]

SECOND = "echo refused; test $LEADHAND_ITERATION = 2"
HINT = "the reeds matter most"


def doer_asks(asked: Asked) -> bool:
    """Whether the doer asks, and not the agent on its own account."""
    return "Bash" in asked.tools or asked.path != "/v1/messages"


def read_by(world: World, session: str) -> list[str | None]:  # noqa: F811
    return [one.read_by for one in list_messages(world.engine, session).items]


@pytest.mark.parametrize("conversation", ["fresh", "continue"])
def test_a_hint_that_comes_while_a_turn_runs_begins_the_next(world, conversation) -> None:  # noqa: F811
    sessions: dict[str, str] = {}
    hinted = set[str]()

    def answer(asked: Asked) -> Reply:
        agent = WHO[asked.path]
        if doer_asks(asked) and agent not in hinted:
            wait_until(lambda: agent in sessions, timeout=60)
            send_hint(world.engine, sessions[agent], HINT, by="ann")  # its first turn runs
            hinted.add(agent)
        return Say("a poem")

    world.scripted(answer)
    world.fleet.worker("one")
    for agent in AGENTS:
        sessions[agent] = loop(world, agent, SECOND, conversation=conversation)
    for agent, session in sessions.items():
        result = ended(world, session)
        assert (result.verdict, result.iterations) == ("accept", 2), (agent, result)
        first, second = asked_by(world, agent)
        assert HINT not in first.prompt
        assert "Messages since your last turn:" in second.prompt
        assert HINT in second.prompt
        assert (TASK in second.prompt) is (conversation == "fresh")
        assert read_by(world, session) == ["loop~1[2]/do"]
        assert world.engine.queries.session(session).needs_attention == []
        notes = [one for one in world.engine.queries.transcript(session).items if HINT in one.text]
        assert [(one.role, one.address) for one in notes] == [
            ("note", "loop~1[2]/do"), ("user", "loop~1[2]/do"),
        ]  # fmt: skip


def test_a_turn_that_is_lost_with_its_worker_leaves_the_hint_to_the_next(world) -> None:  # noqa: F811
    hung = set[str]()

    def answer(asked: Asked) -> Reply:
        if HINT in asked.prompt and not hung:
            hung.add("claude")
            return Hang()
        return Say("a poem")

    world.scripted(answer)
    go = world.folder / "go"
    waits = f"until test -e '{go}'; do sleep 0.05; done; {SECOND}"
    first = world.fleet.worker("one")
    session = loop(world, "claude", waits)
    ref = SessionRef(session, session)
    wait_until(lambda: "loop~1[1]/do" in world.engine.store.outcomes(ref), timeout=60)
    send_hint(world.engine, session, HINT, by="ann")
    go.touch()
    wait_until(lambda: bool(hung), timeout=90)
    assert read_by(world, session) == [None], "a turn that runs has acknowledged nothing"
    world.fleet.kill(first)
    world.fleet.worker("two")
    assert ended(world, session).verdict == "accept"
    lost, again = asked_by(world, "claude")[1:]
    assert count(lost, "user", HINT) == count(again, "user", HINT) == 1
    assert read_by(world, session) == ["loop~1[2]/do"]
