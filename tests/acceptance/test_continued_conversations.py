"""Loops whose doer continues its conversation, with the real claude and codex and a chat model."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from app.compiler import compile_document
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Loop, Step
from leadhand.models.documents import LoopDocument, WorkflowDocument
from leadhand.models.views.result import ResultView
from tests import real_agents
from tests.acceptance.real_agents.test_real_agents import WHO, World, world  # noqa: F401
from tests.model_server import Asked, Hang, Reply, Say
from tests.waiting import wait_until

MISSING = real_agents.why_missing()
pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.timeout(150),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

TASK = "Write a poem on the heron."
#: Accepts from the third iteration on, and has other words for each before that.
THIRD = "echo refused in $LEADHAND_ITERATION; test $LEADHAND_ITERATION = 3"
AGENTS = tuple(WHO.values())


def asked_by(world: World, agent: str) -> list[Asked]:  # noqa: F811
    """The doer's requests to the model, without those that the agent sends by itself."""
    asked = [one for one in world.model.asked if WHO.get(one.path) == agent]
    return [one for one in asked if "Bash" in one.tools or one.path != "/v1/messages"]


def count(asked: Asked, role: str, text: str) -> int:
    return sum(one == role and text in said for one, said in asked.said)


def loop(world: World, agent: str, checker: str = THIRD, **fields: object) -> str:  # noqa: F811
    folder = world.folder / f"work of {agent}"
    folder.mkdir()
    where = {"task": TASK, "cwd": str(folder), "doer": {"agent": agent}, "timeout_s": 100}
    return world.fleet.submitted(checker, **{**where, **fields})


def ended(world: World, session: str) -> ResultView:  # noqa: F811
    return world.fleet.ended(session, timeout=120)


def outcome(world: World, session: str, address: str) -> Outcome:  # noqa: F811
    return world.outcome(session, address)


def numbered(world: World) -> None:  # noqa: F811
    """Let the model answer each agent with the number of its turn."""
    turns = dict.fromkeys(AGENTS, 0)

    def answer(asked: Asked) -> Reply:
        turns[WHO[asked.path]] += 1
        return Say(f"poem {turns[WHO[asked.path]]}")

    world.scripted(answer)


@pytest.mark.slow
def test_a_loop_that_continues_shows_its_model_the_earlier_turns(world) -> None:  # noqa: F811
    numbered(world)
    world.fleet.worker("one")
    sessions = {agent: loop(world, agent, conversation="continue") for agent in AGENTS}
    for agent, session in sessions.items():
        result = ended(world, session)
        assert (result.verdict, result.iterations) == ("accept", 3), (agent, result)
        first, second, third = asked_by(world, agent)
        assert TASK in first.prompt
        for asked, before in ((second, 1), (third, 2)):
            assert count(asked, "user", TASK) == 1, agent
            assert count(asked, "assistant", f"poem {before}") == 1, agent
            assert TASK not in asked.prompt
            assert f"refused in {before}" in asked.prompt
            assert "Previous Summary" not in asked.prompt
        assert count(third, "assistant", "poem 1") == 1
        for iteration in (1, 2, 3):
            kept = outcome(world, session, f"loop~1[{iteration}]/do")
            assert kept.usage is not None
            assert kept.usage.input_tokens == 1000, "each turn counts its own tokens"
            assert kept.prompt is not None
            assert (TASK in kept.prompt) is (iteration == 1), "the prompt is recorded"
        assert world.engine.queries.session(session).counters.input_tokens == 3000


@pytest.mark.slow
def test_a_loop_that_does_not_continue_begins_a_new_conversation_each_time(world) -> None:  # noqa: F811
    numbered(world)
    world.fleet.worker("one")
    sessions = {agent: loop(world, agent) for agent in AGENTS}
    for agent, session in sessions.items():
        assert ended(world, session).verdict == "accept"
        for number, asked in enumerate(asked_by(world, agent), 1):
            assert TASK in asked.prompt
            assert not any(role == "assistant" for role, _ in asked.said), agent
            assert ("Previous Summary" in asked.prompt) is (number > 1)


@pytest.mark.slow
def test_a_lost_attempt_leaves_nothing_in_the_conversation(world) -> None:  # noqa: F811
    hung = set[str]()

    def answer(asked: Asked) -> Reply:
        agent = WHO[asked.path]
        if "refused in 1" in asked.prompt and agent not in hung:
            hung.add(agent)
            return Hang()
        return Say(f"poem {1 + count(asked, 'user', 'refused in')}")

    world.scripted(answer)
    first = world.fleet.worker("one")
    sessions = {agent: loop(world, agent, conversation="continue") for agent in AGENTS}
    wait_until(lambda: hung == set(AGENTS), timeout=90)
    world.fleet.kill(first)
    world.fleet.worker("two")
    for agent, session in sessions.items():
        result = ended(world, session)
        assert (result.verdict, result.iterations) == ("accept", 3), (agent, result)
        assert world.engine.queries.session(session).counters.attempts_lost == 1
        *_, last = asked_by(world, agent)
        assert [count(last, "assistant", f"poem {n}") for n in (1, 2)] == [1, 1], agent
        assert count(last, "user", "refused in 1") == 1, "the lost attempt is not part of it"


@pytest.mark.slow
def test_a_conversation_that_is_gone_gives_a_fresh_prompt_and_a_warning(world) -> None:  # noqa: F811
    numbered(world)
    world.fleet.worker("one")
    gone = f"rm -rf '{world.folder}/claude/projects' '{world.folder}/codex/sessions'"
    checker = f"{gone}; echo refused; test $LEADHAND_ITERATION = 2"
    for agent in real_agents.PROGRAMS:
        session = loop(world, agent, checker, conversation="continue")
        result = ended(world, session)
        assert (result.verdict, result.iterations) == ("accept", 2), (agent, result.reason)
        second = asked_by(world, agent)[-1]
        assert TASK in second.prompt
        assert "Previous Summary" in second.prompt
        (warning,) = world.engine.queries.session(session).warnings
        assert warning.startswith(f"agent '{agent}' no longer has the conversation of the loop")
        assert "iteration 2 began a new one" in warning


@pytest.mark.slow
def test_the_next_run_of_a_phase_begins_a_fresh_conversation(world) -> None:  # noqa: F811
    numbered(world)
    world.fleet.worker("one")
    for agent in AGENTS:
        folder = world.folder / f"work of {agent}"
        folder.mkdir()
        phase = {
            "name": "write it", "task": TASK, "checkers": ["echo refused; false"],
            "max_iterations": 2, "on_fail": "retry:1", "conversation": "continue",
        }  # fmt: skip
        document = WorkflowDocument.model_validate(
            {"name": "w", "cwd": str(folder), "doer": {"agent": agent}, "phases": [phase]}
        )
        session = world.engine.submit.document(document).session
        assert ended(world, session).status == "failed"
        asked = asked_by(world, agent)
        spoken = [sum(role == "assistant" for role, _ in one.said) for one in asked]
        assert spoken == [0, 1, 0, 1], agent
        assert [TASK in one.prompt for one in asked] == [True, False, True, False]
        kept = outcome(world, session, "phase-1~2[2]/do").thread
        assert kept is not None
        assert kept.conversation.startswith(f"{agent}|write-it@phase-1~2 ")


@pytest.mark.slow
def test_a_task_that_changed_within_a_run_is_told_in_the_same_conversation(world) -> None:  # noqa: F811
    numbered(world)
    world.fleet.worker("one")
    command = f"test $LEADHAND_ITERATION = 1 && echo {TASK!r} || echo 'Now write prose.'"
    inputs: dict[str, JsonValue] = {"task": "Plan.", "doer": {"command": command}}
    plan = Step(id="plan", action=Action.AGENT, inputs=inputs)
    for agent in AGENTS:
        given = {"task": TASK, "doer": {"agent": agent}, "conversation": "continue"}
        document = LoopDocument.model_validate({**given, "checkers": [THIRD], "timeout_s": 100})
        (loop,) = compile_document(document).body
        assert isinstance(loop, Loop)
        do, *rest = loop.body
        assert isinstance(do, Step)
        refers = do.model_copy(update={"inputs": {**do.inputs, "task": "${plan.text}"}})
        session = world.run(loop.model_copy(update={"body": (plan, refers, *rest)}))
        assert world.ended(session, timeout=120) == "completed"
        first, second, third = asked_by(world, agent)
        assert TASK in first.prompt
        assert ["Now write prose." in one.prompt for one in (second, third)] == [True, False]
        assert "# Changed Task" in second.prompt
        assert count(third, "user", "Now write prose.") == 1, "it is part of the conversation"
        assert [count(third, "assistant", f"poem {n}") for n in (1, 2)] == [1, 1], agent


@pytest.mark.slow
def test_a_resumed_loop_continues_where_it_was_stopped(world) -> None:  # noqa: F811
    numbered(world)
    world.fleet.worker("one")
    go = world.folder / "go"
    waits = f"until test -e '{go}'; do sleep 0.05; done; {THIRD}"
    session = loop(world, "claude", waits, conversation="continue")
    ref = SessionRef(session, session)
    wait_until(lambda: "loop~1[1]/do" in world.engine.store.outcomes(ref), timeout=60)
    world.engine.control.apply(session, "stop")
    wait_until(lambda: world.engine.queries.session(session).status == "stopped", timeout=30)
    go.touch()
    world.engine.control.apply(session, "resume")
    assert ended(world, session).verdict == "accept"
    *_, last = asked_by(world, "claude")
    assert [count(last, "assistant", f"poem {n}") for n in (1, 2)] == [1, 1]
