"""The agents of a document are checked at submit, against the workers' inventories."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import InvalidDocument
from app.fleet.admission import admit, agents_of, faults_here, other_home
from app.settings import Settings
from leadhand.flows.documents import FlowDocument
from leadhand.models.documents import LoopDocument, WorkflowDocument
from leadhand.models.views.fleet import AgentHere, AgentsFault, WorkerView
from tests.flows import flow, llm, loop

NO_KEY = "the variable MODEL_KEY is not set; set it in the worker's environment"


def here(name: str, **more: Any) -> AgentHere:
    return AgentHere(name=name, kind="command", command=name, **more)


def worker(*agents: AgentHere, place: str = "local", default: str | None = None) -> WorkerView:
    names = [agent.name for agent in agents]
    return WorkerView(
        name=place, place=place, agents=names, agents_here=list(agents), default_agent=default
    )


LOCAL = worker(
    here("able", takes_model=True), here("plain"), here("poor", why_not=NO_KEY), default="plain"
)
FAR = worker(here("poor"), place="far")


def refusal(workers: list[WorkerView], **fields: Any) -> tuple[str, str] | None:
    document = LoopDocument.model_validate({"task": "x", "checkers": ["true"], **fields})
    try:
        admit(document, Settings(), workers)
    except InvalidDocument as error:
        return error.field, str(error)
    return None


JUDGE = {"prompt": "Is it good?"}


@pytest.mark.parametrize(
    ("fields", "field", "why"),
    [
        ({"doer": {"agent": "gone"}}, "doer.agent", "known: able, plain, poor"),
        ({"doer": {"agent": "poor"}}, "doer.agent", NO_KEY),
        ({"doer": {"agent": "plain"}, "model": "m"}, "model", "'plain' takes no model"),
        ({"model": "m"}, "model", "'plain' takes no model"),
        ({"checkers": [{**JUDGE, "agent": "poor"}]}, "checkers[0].agent", NO_KEY),
        (
            {"checkers": [{**JUDGE, "agent": "plain", "model": "m"}]},
            "checkers[0].model",
            "write model_args for it",
        ),
        ({"checkers": [JUDGE], "checker_model": "m"}, "checker_model", "'plain' takes no model"),
    ],
)
def test_what_no_worker_can_do_is_refused_at_submit(fields, field, why) -> None:
    refused = refusal([LOCAL], **fields)
    assert refused is not None
    assert refused[0] == field
    assert why in refused[1]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"doer": {"agent": "able"}, "model": "m"},
        {"doer": {"command": "true"}, "checkers": [JUDGE]},
        {"checkers": [{**JUDGE, "agent": "able", "model": "m"}]},
    ],
)
def test_what_a_worker_can_do_is_taken(fields) -> None:
    assert refusal([LOCAL], **fields) is None


TALKS = worker(here("able", remembers=True), here("plain"), default="plain", place="far")


@pytest.mark.parametrize("doer", [{"agent": "plain"}, None])
def test_an_agent_without_threads_cannot_continue_a_conversation(doer) -> None:
    refused = refusal([TALKS], doer=doer, conversation="continue")
    assert refused is not None
    assert refused[0] == "conversation"
    assert "agent 'plain' cannot continue a conversation; write thread and" in refused[1]
    assert refusal([TALKS], doer={"agent": "able"}, conversation="continue") is None
    phases = [{"name": "a", "task": "t", "checkers": ["true"], "conversation": "continue"}]
    document = WorkflowDocument.model_validate({"name": "w", "phases": phases, "doer": doer})
    with pytest.raises(InvalidDocument, match="cannot continue a conversation") as caught:
        admit(document, Settings(), [TALKS])
    assert caught.value.field == "phases[0].conversation"


def test_a_session_that_continues_a_conversation_is_bound_to_a_place() -> None:
    given = {"task": "t", "checkers": ["true"], "doer": {"agent": "able"}}
    document = LoopDocument.model_validate({**given, "conversation": "continue"})
    assert admit(document, Settings(), [TALKS]).place == "far"
    assert admit(LoopDocument.model_validate(given), Settings(), [TALKS]).place == ""


@pytest.mark.parametrize("workers", [[worker(here("plain"))], []])
def test_who_judges_is_named_where_no_worker_has_a_default_agent(workers) -> None:
    fields = {"doer": {"command": "true"}, "checkers": [JUDGE]}
    refused = refusal(workers, **fields)
    checked = {"type": "check", "checker": "agent: good?"}
    inner = {"steps": [checked]}
    document = flow({"type": "subflow", "flowNames": ["inner"]}, checked, flows={"inner": inner})
    faults = list(faults_here(document, Settings(), workers))
    if not workers:  # then anything goes
        assert (refused, faults) == (None, [])
        return
    assert refused is not None
    assert refused[0] == "checkers[0].agent"
    found = [fault.field for fault in faults]
    assert found == ["steps[1].checker.agent", "flows.inner.steps[0].checker.agent"]
    for text in (refused[1], *map(str, faults)):
        assert text.endswith("name one; no worker has a default agent (LEADHAND_DEFAULT_AGENT)")


def test_a_default_agent_that_judges_in_a_flow_is_one_that_can() -> None:
    document = flow({"type": "check", "checker": "agent: good?"})
    assert list(faults_here(document, Settings(), [LOCAL])) == []
    lame = worker(here("poor", why_not=NO_KEY), default="poor")
    (fault,) = faults_here(document, Settings(), [lame])
    assert (fault.field, fault.value) == ("steps[0].checker.agent", "poor")
    assert NO_KEY in str(fault)
    unasked = flow({"type": "check", "checker": "rubric: R.md"})
    assert list(faults_here(unasked, Settings(), [lame])) == [], "its file may ask no agent"


def test_one_worker_that_can_is_enough() -> None:
    assert refusal([LOCAL, FAR], doer={"agent": "poor"}) is None
    assert refusal([LOCAL, FAR], doer={"agent": "poor"}, place="local") is not None


def test_a_default_agent_that_cannot_be_used_is_told_where_nobody_is_named() -> None:
    lame = worker(here("poor", why_not=NO_KEY), default="poor")
    refused = refusal([lame])
    assert refused is not None
    assert refused[0] == "doer"
    assert NO_KEY in refused[1]


def test_a_file_that_cannot_be_read_is_named_where_it_may_hide_an_agent() -> None:
    whole = AgentsFault(text="/f/agents.toml, line 3: is not TOML: why; correct this line")
    one = AgentsFault(text="/f/agents.toml, line 9: agents.bad.command: why", agent="bad")
    bad = here("bad", why_not=one.text)
    lame = worker(here("plain"), bad).model_copy(update={"agents_faults": [whole, one]})
    hidden = refusal([lame, lame], doer={"agent": "hidden"})
    assert hidden is not None
    assert hidden[1].count(whole.text) == 1
    assert one.text not in hidden[1]
    broken = refusal([lame], doer={"agent": "bad"})
    assert broken is not None
    assert f"it cannot be used: {one.text}" in broken[1]
    assert whole.text not in broken[1]
    assert refusal([lame], doer={"agent": "plain"}) is None


def test_an_older_worker_that_tells_names_alone_is_believed() -> None:
    older = WorkerView(name="w", place="local", agents=["old"])
    assert refusal([older], doer={"agent": "old"}, model="m") is None


def test_agents_are_told_once_with_the_places_where_they_can_be_used() -> None:
    views = {agent.name: agent for agent in agents_of([LOCAL, FAR])}
    assert list(views) == ["able", "plain", "poor"]
    assert (views["poor"].usable_at, views["poor"].why_not) == (["far"], {"local": NO_KEY})
    assert (views["plain"].default, views["able"].default) == (True, False)


def talking(agent: str) -> FlowDocument:
    return flow(llm(agentType=agent))


def test_a_session_stays_where_its_agents_keep_their_conversations() -> None:
    near = worker(here("teller", remembers=True), here("plain"))
    far = worker(here("teller", remembers=True), here("other", remembers=True), place="far")
    settings = Settings(place="local")
    assert admit(talking("teller"), settings, [near, far]).place == "local", "ours before others"
    assert admit(talking("other"), settings, [near, far]).place == "far"
    assert admit(talking("plain"), settings, [near, far]).place == "", "any will do"


CLAUDE = here("claude", remembers=True, keeps_to_folder=True)
CODEX = here("codex", remembers=True)


@pytest.mark.parametrize("more", [{}, {"working_folder": "sub"}])
def test_a_conversation_that_keeps_to_its_folder_goes_on_in_no_other(more: dict[str, str]) -> None:
    began = llm(agentType="claude", working_folder="docs")
    again = llm(agentType="claude", working_folder="./docs/")
    script = {"type": "break", "command": "true", "breakOn": "yes"}
    document = flow(began, again, loop(llm(agentType="claude", **more), script))
    with pytest.raises(InvalidDocument) as caught:
        admit(document, Settings(), [worker(CLAUDE, CODEX)])
    assert caught.value.field == "steps[2].steps[0].working_folder"
    assert "'main' began in 'docs' at steps[0]; give this step another" in str(caught.value)


def test_a_conversation_may_change_its_folder_where_that_does_no_harm() -> None:
    there = [worker(CLAUDE, CODEX)]
    forgotten = {"type": "reset", "agentType": "claude", "identifier": "main"}
    one = llm(agentType="claude")
    two = llm(agentType="claude", working_folder="sub")
    for steps in (
        (one, forgotten, two),
        (one, {**two, "identifier": "other"}),
        (llm(agentType="codex"), llm(agentType="codex", working_folder="sub")),
    ):
        admit(flow(*steps), Settings(), there)


def test_subflows_have_conversations_of_their_own() -> None:
    inner = {"steps": [llm(agentType="claude"), llm(agentType="claude", working_folder="sub")]}
    runs = {"type": "subflow", "flowNames": ["inner"]}
    document = flow(llm(agentType="claude", working_folder="x"), runs, flows={"inner": inner})
    with pytest.raises(InvalidDocument) as caught:
        admit(document, Settings(), [worker(CLAUDE)])
    assert caught.value.field == "flows.inner.steps[1].working_folder"


def test_a_session_is_not_moved_to_where_its_agents_cannot_be_used():
    poor = worker(here("plain"), here("poor", why_not=NO_KEY), place="poor")
    able = worker(here("plain"), here("poor"), place="able")
    rooted = [one.model_copy(update={"roots": ["/f"]}) for one in (poor, able)]
    assert other_home("gone", "/f/x", rooted, agents={"poor"}) == "able"
    assert other_home("gone", "/f/x", rooted, agents={"plain"}) is None
    assert other_home("gone", "/f/x", rooted[:1], agents={"poor"}) is None
