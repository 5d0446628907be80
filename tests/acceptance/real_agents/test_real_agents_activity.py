"""The tool calls and retries of the real claude and codex, as people and other agents see them."""

from __future__ import annotations

from collections import Counter

import pytest

from app.sessions.outputs import list_outputs
from tests import real_agents
from tests.acceptance.real_agents.test_real_agents import (
    WHO,
    agent_step,
    is_of_ours,
    pytestmark,
    world,
)
from tests.fleet import RUNS
from tests.model_server import Asked, Refuse, Reply, Say, Use
from tests.waiting import wait_until

__all__ = ["pytestmark", "world"]


@pytest.mark.slow
def test_tool_calls_are_shown_before_the_step_ends_and_a_failing_one_is_named(world) -> None:
    asked_for = Counter[str]()

    def answer(asked: Asked) -> Reply:
        asked_for[WHO[asked.path]] += 1
        number = asked_for[WHO[asked.path]]
        if number == 1:
            return Use("echo no such luck; exit 3")
        if number == 2:
            return Use("echo fine; until test -e go; do sleep 0.1; done")
        return Say("It is done.")

    world.scripted(answer)
    world.fleet.worker("one")
    session = world.run(*(agent_step(a, "Try it.", a, needs=()) for a in real_agents.PROGRAMS))

    def shown() -> dict[str, str]:
        views = list_outputs(world.engine, session, step=None, limit=10)
        return {view.address: "".join(part.text for part in view.parts) for view in views}

    def both_wait() -> bool:
        return sum("> " in text and "until test -e go" in text for text in shown().values()) == 2

    wait_until(both_wait, timeout=90)
    for agent, tool in (("claude", "Bash"), ("codex", "shell")):
        assert f"> {tool}: echo no such luck; exit 3\n" in shown()[agent]
        (failed,) = [line for line in shown()[agent].splitlines() if line.startswith("< failed: ")]
        assert failed.startswith(f"< failed: {tool}: ")
        assert "no such luck" in failed
    assert world.engine.queries.session(session).status in RUNS
    (world.folder / "go").touch()
    assert world.ended(session) == "completed"
    wait_until(lambda: all(text.endswith("It is done.\n") for text in shown().values()), timeout=20)
    for agent in real_agents.PROGRAMS:
        calls = world.outcome(session, agent).tools
        assert calls is not None
        assert [call.failed for call in calls] == [True, False]
    entries = world.engine.queries.transcript(session).items
    assert [len(e.tools) for e in entries if e.role == "assistant"] == [2, 2]
    assert world.engine.queries.session(session).warnings == []


@pytest.mark.slow
def test_a_step_in_which_every_tool_call_failed_says_so_to_people_and_to_agents(world) -> None:
    judged = Counter[str]()

    def answer(asked: Asked) -> Reply:
        if "You are the checker" in asked.prompt:
            judged[asked.path] += 1
            return Say("Once more.\nRETRY" if judged[asked.path] == 1 else "Good.\nACCEPT")
        return Say("All is well.") if asked.results else Use("exit 3")

    world.scripted(answer)
    world.fleet.worker("one")
    for agent in real_agents.PROGRAMS:
        checker = {"prompt": "Is it good?", "agent": agent}
        session = world.fleet.submitted(checker, doer={"agent": agent})
        result = world.fleet.ended(session, timeout=100)
        assert (result.verdict, result.iterations) == ("accept", 2), result
        assert result.warnings == [f"agent '{agent}': its only tool call failed"] * 2
    failed = "used tools and its only tool call failed."
    for path in ("/v1/messages", "/v1/responses"):
        prompts = {a.prompt for a in world.model.asked if a.path == path and is_of_ours(a)}
        assert sum(f"The doer {failed}" in prompt for prompt in prompts) == 2
        assert sum(f"The doer of the previous iteration {failed}" in p for p in prompts) == 1


@pytest.mark.slow
def test_the_retries_of_claude_are_shown(world) -> None:
    replies: list[Reply] = [Refuse(529)]
    world.scripted(lambda asked: replies.pop() if replies else Say("Better now."))
    world.fleet.env["CLAUDE_CODE_MAX_RETRIES"] = "2"
    world.fleet.worker("one")
    session = world.run(agent_step("do", "How are you?", "claude", needs=()))
    assert world.ended(session) == "completed"
    (view,) = list_outputs(world.engine, session, step=None, limit=10)
    text = "".join(part.text for part in view.parts)
    assert "! retry: 1 of 2 in " in text
    assert "overloaded (529)" in text
