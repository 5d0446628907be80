"""The real claude and codex, real workers, and a model that answers as each test says."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Loop, Program, Step
from app.sessions.submit import About
from app.settings import Settings
from leadhand.errors import StoreAway
from leadhand.flows.documents import FlowRun
from leadhand.local.redis_server import RedisServer
from tasks.bootstrap import make_engine
from tests import real_agents
from tests.fleet import RUNS, Fleet
from tests.model_server import Asked, Drop, Hang, ModelServer, Refuse, Reply, Say, Use, model_server
from tests.redis_users import of_broker
from tests.waiting import wait_until
from workers.prompts import VERDICT_QUESTION
from workers.registry.agent_entry import BUILTIN_AGENTS

MISSING = real_agents.why_missing()
pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.timeout(150),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

#: Who asks in which dialect.
WHO = {"/v1/messages": "claude", "/v1/responses": "codex", "/v1/chat/completions": "small"}
CODEX = """
model = "scripted"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
request_max_retries = 0
stream_max_retries = 0
"""
AGENTS = """
[agents.small]
model = {{name = "small", base_url = "{url}/v1", key_env = "SMALL_KEY"}}
prices = {{input_usd = 2, output_usd = 10}}
"""


class World:
    """A fleet whose agents ask a model of the test's."""

    def __init__(self, folder: Path, model: ModelServer, fleet: Fleet, server: RedisServer) -> None:
        self.folder, self.model, self.fleet, self.server = folder, model, fleet, server
        self.engine = fleet.engine
        (folder / "codex").mkdir()
        (folder / "tmp").mkdir()
        (folder / "codex" / "config.toml").write_text(CODEX.format(url=model.url))
        (folder / "agents.toml").write_text(AGENTS.format(url=model.url))
        fleet.env |= {
            "PATH": f"{real_agents.BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "sk-ant-of-the-test-0123456789",
            "CLAUDE_CONFIG_DIR": str(folder / "claude"),
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "CODEX_HOME": str(folder / "codex"),
            # The sandbox of Codex needs helpers, which it makes in no temporary directory.
            "TMPDIR": str(folder / "tmp"),
            "OPENAI_API_KEY": "sk-of-the-test-0123456789",
            "SMALL_KEY": "sk-small-of-the-test-0123456789",
            "LEADHAND_CONCURRENCY": "3",
            "LEADHAND_AGENTS": str(folder / "agents.toml"),
        }

    def scripted(self, answer: Callable[[Asked], Reply]) -> None:
        """Answer what agents ask on their own account too, which is not what the test is about."""
        self.model.answer = lambda asked: answer(asked) if is_of_ours(asked) else Say("yes")

    def run(self, *body: Step | Loop) -> str:
        """Start a session of a program that works in the fleet's folder."""
        folder = str(self.folder)
        place = self.engine.settings.place
        about = About("loop", "test", cwd=folder, folder=folder, place=place)
        return self.engine.submit.program(Program(body=body), about).session

    def ended(self, session: str, timeout: float = 90) -> str:
        wait_until(lambda: self.engine.queries.session(session).status not in RUNS, timeout=timeout)
        return self.engine.queries.session(session).status

    def outcome(self, session: str, address: str) -> Outcome:
        kept = self.engine.store.outcomes(SessionRef(session, session))
        return Outcome.model_validate_json(kept[address])

    def restart_redis(self) -> None:
        """Kill it, and start it again on what it wrote down."""
        self.server.kill()
        self.server.relaunch()

        def answers() -> bool:
            with suppress(StoreAway):
                self.engine.store.ping()
                return True
            return False

        wait_until(answers, timeout=20)

    def answer(self, session: str, address: str) -> None:
        """Answer the question of a step that waits for somebody."""
        ref = SessionRef(session, session)
        wait_until(lambda: self.parked(session, address) is not None, timeout=60)
        fence = self.parked(session, address)
        assert fence is not None
        self.engine.answers.settle(
            ref, address, Outcome(word="succeeded"), fence=fence, by="the test"
        )

    def parked(self, session: str, address: str) -> int | None:
        record = self.engine.store.steps(SessionRef(session, session), [address]).get(address)
        return record.fence if record is not None and record.state == "parked" else None


def is_of_ours(asked: Asked) -> bool:
    return asked.path != "/v1/messages" or not {"Bash", "Read"}.isdisjoint(asked.tools)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    redis = RedisServer(tmp_path / "redis" / ".leadhand")
    with redis as server, model_server(lambda asked: Say("unscripted")) as model:
        fleet = Fleet(tmp_path, server.url, of_broker(server.url), lease_s=6)
        try:
            yield World(tmp_path, model, fleet, server)
        finally:
            fleet.close()


def agent_step(name: str, task: str, agent: str, **more: object) -> Step:
    given = {"inputs": {"task": task, "doer": {"agent": agent}}, "timeout_s": 100}
    return Step.model_validate({"id": name, "action": "agent", **given, **more})


def test_a_doer_writes_by_a_real_tool_call_and_a_checker_judges_it(world) -> None:
    judged, offered = Counter[str](), set[str]()

    def answer(asked: Asked) -> Reply:
        if "You are the checker" in asked.prompt:
            judged[asked.path] += 1
            offered.update(asked.tools if asked.path == "/v1/messages" else ())
            good = judged[asked.path] == 2
            return Say("Good.\nACCEPT" if good else "Once more.\nRETRY", 500, 20)
        return Say("It is written.") if asked.results else Use("echo turn >> made.txt")

    world.scripted(answer)
    world.fleet.worker("one")
    sessions = {}
    for agent in real_agents.PROGRAMS:
        (world.folder / f"work of {agent}").mkdir()
        checker = {"prompt": "Is made.txt there?", "agent": agent}
        where = {"doer": {"agent": agent}, "cwd": str(world.folder / f"work of {agent}")}
        sessions[agent] = world.fleet.submitted(checker, **where)
    for agent, session in sessions.items():
        result = world.fleet.ended(session, timeout=120)
        assert (result.verdict, result.iterations) == ("accept", 2), result
        assert (world.folder / f"work of {agent}/made.txt").read_text() == "turn\nturn\n"
        assert [entry.verdict for entry in result.history] == ["retry", "accept"]
        # The tool call and the answer of the doer, and the checker's word.
        assert [entry.input_tokens for entry in result.history] == [2500, 2500]
        assert [entry.output_tokens for entry in result.history] == [220, 220]
        counters = world.engine.queries.session(session).counters
        assert (counters.input_tokens, counters.output_tokens) == (5000, 440)
        assert (counters.cost_usd > 0) is (agent == "claude"), "codex tells no cost"
    assert {one for one in offered if not one.startswith("mcp__")} == {"Read", "Grep", "Glob"}
    told = [asked for asked in world.model.asked if "Checker Feedback" in asked.prompt]
    assert {WHO[asked.path] for asked in told if "Once more." in asked.prompt} == {
        "claude",
        "codex",
    }


def test_unclear_judge_is_asked_once_more_in_its_own_conversation(world) -> None:
    def answer(asked: Asked) -> Reply:
        if asked.prompt.strip() == VERDICT_QUESTION:
            return Say("ACCEPT", 500, 20)
        return Say("Looks good. ACCEPT", 500, 20)

    world.model.answer = lambda asked: (
        answer(asked) if asked.heard("You are the checker") else Say("yes")
    )
    world.fleet.worker("one")
    (work := world.folder / "work").mkdir()  # where no agent keeps its conversations
    for agent in real_agents.PROGRAMS:
        checker = {"prompt": "Is it good?", "agent": agent}
        where = {"doer": {"command": "true"}, "cwd": str(work)}
        result = world.fleet.ended(world.fleet.submitted(checker, **where), 120)
        assert (result.verdict, result.iterations) == ("accept", 1), result
        [check] = result.history[0].checks
        assert check["decided_by"] == "line"
        assert check["raw"] == f"Looks good. ACCEPT\n\n[{VERDICT_QUESTION}]\n\nACCEPT"
        assert (result.history[0].input_tokens, result.history[0].output_tokens) == (1000, 40)
    asked = [one for one in world.model.asked if one.prompt.strip() == VERDICT_QUESTION]
    assert [WHO[one.path] for one in asked] == list(real_agents.PROGRAMS)
    assert all(one.heard("Looks good. ACCEPT") for one in asked), "it is the same conversation"
    rollouts = list((world.folder / "codex").rglob("rollout-*.jsonl"))
    lines = [json.loads(line) for file in rollouts for line in file.read_text().splitlines()]
    turns = [one["payload"] for one in lines if one["type"] == "turn_context"]
    assert {turn["sandbox_policy"]["type"] for turn in turns} == {"read-only"}
    assert len(turns) >= 2


TALK = ("The word is heron.", "Keep it.", "Which was the word?", "Do you know a word?")


@pytest.mark.slow
def test_conversations_go_on_across_steps_workers_and_a_restart(world) -> None:
    refused = set[str]()

    def answer(asked: Asked) -> Reply:
        if asked.prompt.strip() == TALK[1] and asked.path not in refused:
            refused.add(asked.path)
            return Refuse(429)
        return Say(f"I heard {asked.prompt.strip()}")

    world.scripted(answer)
    first = world.fleet.worker("one")
    session = world.run(
        *(step for agent in WHO.values() for step in _first_words(agent)),
        Step(id="pause", action=Action.HUMAN, timeout_s=300, inputs={"question": "Go on?"},
             needs=tuple(f"{agent}.1" for agent in WHO.values())),
        *(step for agent in WHO.values() for step in _last_words(agent)),
    )  # fmt: skip
    wait_until(lambda: world.parked(session, "pause") is not None, timeout=90)
    world.fleet.kill(first)
    world.restart_redis()
    world.fleet.worker("two")
    world.answer(session, "pause")
    assert world.ended(session) == "completed"
    for path, agent in WHO.items():
        asked = {a.prompt.strip(): a for a in world.model.asked if a.path == path and is_of_ours(a)}
        assert list(asked) == list(TALK)
        assert asked[TALK[2]].heard(TALK[0])
        assert asked[TALK[2]].heard(f"I heard {TALK[1]}")
        kept = [text for role, text in asked[TALK[2]].said if TALK[1] in text and role == "user"]
        assert len(kept) == 1, "the attempt that failed has left nothing"
        assert not asked[TALK[3]].heard("heron"), "another identifier is another talk"
        outcomes = [world.outcome(session, f"{agent}.{turn}") for turn in range(4)]
        assert [o.usage.input_tokens for o in outcomes if o.usage] == [1000] * 4, "each its own"
        assert all(outcome.thread is not None and outcome.thread.id for outcome in outcomes)


def _first_words(agent: str) -> list[Step]:
    talk = f"{agent}|main"
    return [
        agent_step(f"{agent}.0", TALK[0], agent, conversation=talk, needs=()),
        agent_step(f"{agent}.1", TALK[1], agent, conversation=talk, needs=(f"{agent}.0",)),
    ]


def _last_words(agent: str) -> list[Step]:
    third = agent_step(f"{agent}.2", TALK[2], agent, conversation=f"{agent}|main", needs=("pause",))
    other = f"{agent}|other"
    return [
        third,
        agent_step(f"{agent}.3", TALK[3], agent, conversation=other, needs=(f"{agent}.2",)),
    ]


@pytest.mark.slow
def test_agents_decide_when_a_loop_ends(world) -> None:
    asked_for = Counter[str]()

    def answer(asked: Asked) -> Reply:
        asked_for[WHO[asked.path]] += 1
        word = "yes" if asked_for[WHO[asked.path]] == 2 else "no"
        return Say(f'I think so:\n```json\n{{"answer": "{word}"}}\n```')

    world.scripted(answer)
    world.fleet.worker("one")
    turn = Step(id="turn", action=Action.AGENT, inputs={"task": "x", "doer": {"command": "true"}})
    asks = {"question": "Is it enough?", "break_on": "yes"}
    session = world.run(*(
        Loop(id=agent, needs=(), max_iterations=5, body=(turn, Step(
            id="enough", action=Action.BREAK, inputs={**asks, "agent": agent}, timeout_s=100,
        )))
        for agent in WHO.values()
    ))  # fmt: skip
    assert world.ended(session) == "completed"
    assert asked_for == dict.fromkeys(WHO.values(), 2)
    for agent in WHO.values():
        usage = world.outcome(session, f"{agent}~1[2]/enough").usage
        assert usage is not None
        assert usage.input_tokens == 1000


@pytest.mark.slow
def test_a_model_that_is_busy_is_asked_again_later_and_holds_no_worker(world) -> None:
    bad: dict[str, Reply] = {"claude": Refuse(429), "codex": Drop(), "small": Refuse(503, "1")}
    world.scripted(lambda asked: bad.pop(WHO[asked.path], Say("Better now.")))
    world.fleet.worker("one")
    session = world.run(*(agent_step(a, "How are you?", a, needs=()) for a in WHO.values()))
    assert world.ended(session) == "completed"
    events = [
        e for e in world.engine.queries.events(session, limit=100) if e.type == "step.retried"
    ]
    assert {event.address for event in events} == set(WHO.values())
    assert world.engine.queries.session(session).counters.attempts_failed == 0
    assert {world.outcome(session, agent).text for agent in WHO.values()} == {"Better now."}


@pytest.mark.slow
def test_a_model_that_will_not_answer_ends_the_step_clearly(world) -> None:
    world.scripted(lambda asked: Hang() if "hang" in asked.prompt else Refuse(401))
    world.fleet.worker("one")
    more = {"needs": (), "critical": False}
    steps = [
        agent_step(f"{agent}.{task}", task, agent, **more, timeout_s=8 if task == "hang" else 60)
        for agent in real_agents.PROGRAMS
        for task in ("refuse", "hang")
    ]
    session = world.run(*steps)
    assert world.ended(session) == "completed"
    for agent in real_agents.PROGRAMS:
        for task, why in (("refuse", "401"), ("hang", "timed out after 8 seconds")):
            reason = world.outcome(session, f"{agent}.{task}").reason
            assert reason is not None
            assert reason.text.startswith(f"agent '{agent}' ")
            assert why in reason.text
    assert world.model.left.wait(20), "nobody waits for it any more"


@pytest.mark.slow
def test_a_cost_cap_ends_a_running_agent_by_what_it_tells(world) -> None:
    world.scripted(lambda asked: Use("sleep 0.1", 200_000, 10))
    (world.folder / "agents.toml").write_text(_priced_claude())
    world.fleet.worker("one")
    session = world.fleet.submitted("true", doer={"agent": "priced"}, budget={"cost_usd": 1.0})
    result = world.fleet.ended(session, timeout=100)
    assert result.reason is not None
    assert result.reason.root.code == "budget", result.reason
    used = world.engine.queries.session(session).counters.cost_usd
    assert 1.0 <= used < 20, "it was ended in the middle, and what it had used is counted"
    wait_until(lambda: not _claudes(world.folder), timeout=20)


@pytest.mark.slow
def test_a_token_cap_ends_a_running_agent_by_what_it_tells(world) -> None:
    world.scripted(lambda asked: Use("sleep 0.1", 200_000, 10))
    world.fleet.worker("one")
    session = world.fleet.submitted("true", doer={"agent": "claude"}, budget={"tokens": 500_000})
    result = world.fleet.ended(session, timeout=100)
    assert result.reason is not None
    assert result.reason.root.code == "budget", result.reason
    assert "of 500000 tokens" in result.reason.root.text
    wait_until(lambda: not _claudes(world.folder), timeout=20)


@pytest.mark.slow
def test_which_agents_find_a_conversation_from_another_folder_is_as_their_entries_say(
    world,
) -> None:
    world.scripted(lambda asked: Say("Heard."))
    world.fleet.worker("one")
    (world.folder / "sub").mkdir()
    steps = []
    for agent in real_agents.PROGRAMS:
        talk, more = f"{agent}|main", {"critical": False}
        first = agent_step(f"{agent}.0", TALK[0], agent, conversation=talk, needs=(), **more)
        second = agent_step(f"{agent}.1", TALK[2], agent, conversation=talk, **more)
        inputs = {**second.inputs, "working_folder": "sub"}
        steps += [first, second.model_copy(update={"needs": (first.id,), "inputs": inputs})]
    session = world.run(*steps)
    assert world.ended(session) == "completed"
    for agent in real_agents.PROGRAMS:
        found = world.outcome(session, f"{agent}.1").word == "succeeded"
        assert found is not BUILTIN_AGENTS[agent].keeps_to_folder, agent
        said = [a for a in world.model.asked if WHO[a.path] == agent and TALK[2] in a.prompt]
        assert any(asked.heard(TALK[0]) for asked in said) is found


def _priced_claude() -> str:
    """The ready-made entry with prices: it tells its tokens while it works, not its cost."""
    claude = BUILTIN_AGENTS["claude"].model_dump(
        mode="json", exclude_none=True, exclude_defaults=True
    )
    prices = {"input_usd": 1.0, "output_usd": 5.0}
    lines = [f"{key} = {_toml(value)}" for key, value in {**claude, "prices": prices}.items()]
    return "[agents.priced]\n" + "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _claudes(folder: Path) -> list[psutil.Process]:
    """The agents that still work in the folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = " ".join(process.info["cmdline"] or [])
        if process.info["cwd"] == str(folder) and "stream-json" in words:
            found.append(process)
    return found


EXAMPLES = Path(__file__).resolve().parents[3] / "examples/flows"


@pytest.mark.slow
def test_the_examples_run_with_real_agents(world) -> None:
    """As `leadhand flow run NAME --agent claude` does, each by one of them."""
    asked_for = Counter[str]()

    def answer(asked: Asked) -> Reply:
        prompt = asked.prompt
        if "?" in prompt and "# The question to a person" not in prompt:
            asked_for[f"{WHO[asked.path]} {prompt.splitlines()[0]}"] += 1
            again = "Is it good as it is?" in prompt and len(asked.said) < 5
            return Say(json.dumps({"answer": "no" if again else "yes"}))
        if "Begin a file of notes" in prompt and not asked.results:
            return Use("echo one line > notes.md")
        return Say(f"Done: {prompt.strip().splitlines()[-1]}")

    world.scripted(answer)
    world.fleet.worker("one")
    flows = Settings.from_env(world.fleet.env | {"LEADHAND_FLOWS": str(EXAMPLES / "flows")})
    engine, celery = make_engine(flows)
    sessions = {}
    for number, flow in enumerate(("review", "nested", "decide", "release", "question")):
        agent = real_agents.PROGRAMS[number % 2]
        work = world.folder / flow
        work.mkdir()
        shutil.copy(EXAMPLES / "is_there.sh", work)
        run = FlowRun(working_folder=str(work), agents={"*": agent})
        sessions[flow] = engine.submit.flow(flow, run).session
    wait_until(lambda: world.parked(sessions["question"], "choose-ask") is not None, timeout=60)
    engine.answers.give(sessions["question"], "the second", address="choose-ask")
    for flow, session in sessions.items():
        assert world.ended(session, timeout=120) == "completed", (
            flow,
            engine.explainer.explain(session),
        )
    (thanks,) = [asked for asked in world.model.asked if "Thank the person for" in asked.prompt]
    assert thanks.heard("the second")
    assert not thanks.heard("Propose three titles"), "the conversation was forgotten before"
    assert (world.folder / "decide/notes.md").read_text() == "one line\n"
    assert (world.folder / "release/notes.md").read_text() == "one line\n"
    celery.close()
