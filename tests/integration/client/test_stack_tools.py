"""The MCP tools of stacks, driven by the official SDK's client over stdio."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from app.security.signatures import BODY_SCOPES, Caller, mint
from tests.http_world import SECRET, TOKEN, Served, served
from tests.integration.client.test_mcp import Tools, using

pytestmark = pytest.mark.timeout(180)
WORKFLOW = {"job_name": "web", "workflow_name": "release", "goal": "ship", "first_step_id": "build"}


@pytest.fixture(scope="module")
def api(module_store_url: str) -> Iterator[Served]:
    with served(module_store_url) as running:
        yield running


def test_an_agent_nests_workflows_and_is_told_what_is_active(api: Served):
    stack = {"stack": f"s{uuid4().hex[:8]}"}

    async def calls(tools: Tools) -> None:
        text = await tools.refusal("start_step", step_id="x", **stack)
        assert text.startswith("No active workflow session. Use start_workflow")
        started = await tools.get("start_workflow", **WORKFLOW, **stack)
        below = started["active_session_id"]
        top = (await tools.get("start_workflow", **WORKFLOW, **stack))["active_session_id"]
        await tools.get("start_step", step_id="test", **stack)
        counts = [
            (await tools.get("record_quality_attempt", step_id="test", **stack))["quality_attempts"]
            for _ in range(2)
        ]
        assert counts == [1, 2]
        await tools.get("complete_step", step_id="test", outputs={"a": 1}, notes="n", **stack)
        assert (await tools.get("get_all_outputs", **stack))["outputs"] == {"a": 1}
        await tools.get("advance_to_step", step_id="deploy", entry_index=2, **stack)
        lines = (await tools.get("get_stack", **stack))["stack"]
        assert [(one["session_id"], one["step"]) for one in lines] == [
            (below, "build"), (top, "deploy"),
        ]  # fmt: skip
        done = await tools.get("complete_workflow", session_id=below, **stack)
        assert (done["session"]["status"], done["active_session_id"]) == ("completed", top)
        assert (await tools.get("get_active_session", **stack))["session_id"] == top
        ended = await tools.get("abort_workflow", explanation="no time", **stack)
        assert (ended["session"]["abort_reason"], ended["depth"]) == ("no time", 0)
        text = await tools.refusal("load_session", session_id=top, **stack)
        assert "has ended" in text
        loaded = await tools.get("load_session", session_id=top, force=True, **stack)
        assert loaded["active_session_id"] == top
        listed = await tools.get("list_sessions", status="completed", **stack)
        assert [one["session_id"] for one in listed["items"]] == [below]

    using(api.url, TOKEN, calls)


def test_agents_of_one_folder_keep_stacks_of_their_own(api: Served):
    one, two = ({"agent_session": f"s-{uuid4().hex[:8]}"} for _ in range(2))

    async def calls(tools: Tools) -> None:
        first = (await tools.get("start_workflow", **WORKFLOW, **one))["active_session_id"]
        second = (await tools.get("start_workflow", **WORKFLOW, **two))["active_session_id"]
        for of, session in ((one, first), (two, second)):
            lines = (await tools.get("get_stack", **of))["stack"]
            assert [line["session_id"] for line in lines] == [session]
        done = await tools.get("complete_workflow", **one)
        assert (done["session"]["session_id"], done["depth"]) == (first, 0)
        assert (await tools.get("get_active_session", **two))["session_id"] == second
        await tools.get("abort_workflow", explanation="tried", **two)

    using(api.url, TOKEN, calls)


def test_a_doer_keeps_its_workflow_with_the_token_of_its_attempt(api: Served):
    session = api.submit()
    ref = api.engine.store.ref(session)
    assert ref is not None
    grant = api.engine.attempts.claim(ref, "loop~1[1]/do", nonce="n", worker="w").grants[0]
    token = mint(Caller(session, grant.address, grant.fence, BODY_SCOPES), secret=SECRET)

    async def calls(tools: Tools) -> None:
        stack = f"s{session}"
        await tools.get("start_workflow", **WORKFLOW, stack=stack)
        assert (await tools.get("get_stack", stack=stack))["depth"] == 1

    using(api.url, token, calls, session)
