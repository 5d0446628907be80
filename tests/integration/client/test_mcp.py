"""`leadhand mcp`, driven by the official SDK's client over stdio, against an API of its own."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, TextContent

from app.core.outcomes import Outcome
from app.security.signatures import BODY_SCOPES, Caller, mint
from leadhand.cli.mcp_check import mcp_finding
from leadhand.client.client import Client
from leadhand.models.guards import GateResult, StopReport
from tests.http_world import LOOP, SECRET, TOKEN, Served, served
from tests.integration.client.plan_driving import DrivenPlan
from tests.integration.client.test_inbox_commands import child_of
from workers.attempt.settle import park

pytestmark = pytest.mark.timeout(180)

TOOLS = [
    "report_status", "update_task", "task_list", "task_get", "task_update", "add_task",
    "exit", "ask_human", "inbox", "lock_acquire", "lock_release", "kv_get",
    "kv_set", "kv_list", "kv_delete", "cb_status", "cb_reset", "start_session",
    "wait_session", "session_status", "explain", "notify_parent",
    "start_workflow", "start_step", "complete_step", "record_quality_attempt", "advance_to_step",
    "complete_workflow", "abort_workflow", "load_session", "get_active_session", "get_stack",
    "get_all_outputs", "list_sessions",
]  # fmt: skip
PLAN = {
    "kind": "plan",
    "request": "Build it.",
    "doer": {"command": "true"},
    "baseline": False,
    "checkers": [{"name": "ok", "command": "true"}],
    "tasks": [{"id": "a", "title": "First"}, {"id": "b", "title": "Second"}],
}


@pytest.fixture(scope="module")
def api(module_store_url: str) -> Iterator[Served]:
    with served(module_store_url) as running:
        yield running


class Tools:
    """Calls the tools of one server process."""

    def __init__(self, client: McpClient) -> None:
        self.client = client

    async def get(self, tool: str, **given: Any) -> dict[str, Any]:
        """Call a tool that is to succeed; its object."""
        found = await self.client.call_tool(tool, given)
        assert not found.is_error, text_of(found)
        assert json.loads(text_of(found)) == found.structured_content
        return dict(found.structured_content)

    async def refusal(self, tool: str, **given: Any) -> str:
        """Call a tool that must fail, and return its error text."""
        found = await self.client.call_tool(tool, given)
        assert found.is_error, text_of(found)
        assert "Traceback" not in text_of(found)
        assert len(text_of(found).splitlines()) == 1
        return text_of(found)


def text_of(found: CallToolResult) -> str:
    (one,) = found.content
    assert isinstance(one, TextContent)
    return one.text


def using(
    url: str, token: str, calls: Callable[[Tools], Awaitable[None]], session: str | None = None
) -> None:
    """Run these calls against a server process with this environment."""
    env = {"LEADHAND_URL": url, "LEADHAND_TOKEN": token}
    if session is not None:
        env["LEADHAND_SESSION"] = session
    started = StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "leadhand", "mcp"], env=env
    )

    async def connect() -> None:
        async with McpClient(stdio_client(started)) as client:
            await calls(Tools(client))

    asyncio.run(connect())


def body_of(api: Served, plan: DrivenPlan, task: str) -> tuple[str, str]:
    """The session that carries out a task, and the token of its running doer."""
    child, grant = plan.doer(task)
    caller = Caller(child.id, grant.address, grant.fence, BODY_SCOPES)
    return child.id, mint(caller, secret=SECRET)


@pytest.fixture
def plan(api: Served) -> DrivenPlan:
    """A plan whose two tasks have started."""
    with Client(api.url, TOKEN) as client:
        found = DrivenPlan(api, client.submit(PLAN).id)
    found.draft(PLAN["tasks"])  # type: ignore[arg-type]
    found.begin()
    return found


def test_each_tool_is_listed_with_a_sentence_and_a_schema(api) -> None:
    async def calls(tools: Tools) -> None:
        listed = (await tools.client.list_tools()).tools
        assert [one.name for one in listed] == TOOLS
        for one in listed:
            assert (one.description or "").endswith(".")
            assert one.input_schema["type"] == "object"
            assert one.input_schema["additionalProperties"] is False
        report = listed[0].input_schema
        assert report["required"] == ["status"]
        assert "blocked" in report["properties"]["status"]["enum"]

    using(api.url, TOKEN, calls)


def test_a_body_reports_about_its_own_task_alone(api, plan) -> None:
    session, token = body_of(api, plan, "a")

    async def calls(tools: Tools) -> None:
        first = await tools.get("report_status", status="in_progress", notes="half of it")
        assert (first["session"], first["task"], first["repeated"]) == (plan.id, "a", False)
        assert [one["id"] for one in (await tools.get("task_list"))["items"]] == ["a"]
        assert (await tools.get("task_list", status="completed"))["items"] == []
        assert (await tools.get("task_get"))["notes"] == "half of it"
        again = await tools.get("update_task", status="in_progress", notes="half of it")
        assert (again["repeated"], again["version"]) == (True, first["version"])
        await tools.get("task_update", id="a", notes="most of it")
        await tools.get("add_task", id="more", title="More", why="it is missing")
        await tools.get("update_task", status="done", pr_url="https://git.example/pr/7")
        assert "'b' is not the task of this session, which is 'a'" in await tools.refusal(
            "task_update", id="b", status="failed"
        )
        assert "title: only an edit" in await tools.refusal("task_update", title="Other")
        assert "it sees a" in await tools.refusal("task_get", id="b")
        # The token of a body does not read its parent's plan, whatever it names.
        await tools.refusal("task_list", plan=plan.id)
        await tools.refusal("task_update", plan=plan.id, id="b", title="Mine")

    using(api.url, token, calls, session)
    task = plan.task("a")
    assert (task.status, task.verified, task.notes) == ("completed", False, "most of it")
    assert task.pr_url == "https://git.example/pr/7"
    assert [(one.task.id, one.why) for one in plan.view.proposals] == [("more", "it is missing")]
    assert plan.task("b").title == "Second"


def test_arguments_that_do_not_fit_are_told_in_a_sentence(api, plan) -> None:
    session, token = body_of(api, plan, "a")
    version = plan.view.version

    async def calls(tools: Tools) -> None:
        assert "status is 'great': use 'pending'" in await tools.refusal(
            "report_status", status="great"
        )
        assert "status is missing" in await tools.refusal("report_status")
        assert "did you mean 'notes'" in await tools.refusal(
            "report_status", status="done", note="x"
        )
        assert "did you mean 'report_status'" in await tools.refusal("report_statu", status="done")
        assert "notes is ' \\n'" in await tools.refusal(
            "report_status", status="failed", notes=" \n"
        )
        # The server continues after errors.
        assert (await tools.get("session_status"))["id"] == session

    using(api.url, token, calls, session)
    assert plan.view.version == version


def test_a_superseded_attempt_cannot_report(api, plan) -> None:
    child, grant = plan.doer("a")
    late = mint(Caller(child.id, grant.address, grant.fence, BODY_SCOPES), secret=SECRET)
    work = api.engine.attempts.work(child, grant)
    api.engine.attempts.settle(work, Outcome(word="succeeded"), take=[], worker="w")

    async def calls(tools: Tools) -> None:
        said = await tools.refusal("report_status", status="failed", notes="late")
        assert said

    using(api.url, late, calls, child.id)
    assert plan.task("a").status == "in_progress"


def test_a_child_notifies_reads_its_inbox_and_exits(api) -> None:
    parent = api.submit()
    child, token = child_of(api, parent)
    with Client(api.url, TOKEN) as client:
        client.hint(child.id, "look at the log")

    async def calls(tools: Tools) -> None:
        sent = await tools.get(
            "notify_parent", status="failure", message="it does not build", pr_number=7
        )
        assert sent["sender"] == child.id
        assert "message" in await tools.refusal("notify_parent", status="success", message=" ")
        (unread,) = (await tools.get("inbox"))["items"]
        assert unread["text"] == "look at the log"
        assert len((await tools.get("inbox", take=True))["items"]) == 1
        assert (await tools.get("inbox"))["items"] == []
        assert "reason" in await tools.refusal("exit", reason=" ")
        assert (await tools.get("exit", reason="there is no such file"))["id"] == child.id

    using(api.url, token, calls, child.id)
    with Client(api.url, TOKEN) as client:
        assert client.session(child.id).status in ("exiting", "exited")
        (message,) = client.inbox(parent).items
        assert message.text.startswith("it does not build")


def test_bodies_of_a_tree_share_locks_and_values(api) -> None:
    parent = api.submit()
    child, token = child_of(api, parent)

    async def calls(tools: Tools) -> None:
        with Client(api.url, TOKEN) as client:
            first = await tools.get("lock_acquire", name="src/a.py", ttl_s=60)
            assert (first["state"], client.locks(parent)[0].fence) == ("held", first["fence"])
            again = await tools.get("lock_acquire", name="src/a.py", ttl_s=600)
            assert (again["fence"], again["until"] > first["until"]) == (first["fence"], True)
            assert await tools.get("lock_release", name="src/a.py") == {
                "name": "src/a.py", "released": True,
            }  # fmt: skip
            assert "did not take lock" in await tools.refusal("lock_release", name="src/a.py")
            client.acquire_lock(parent, "src/a.py")
            assert f"session {parent} since" in await tools.refusal(
                "lock_acquire", name="src/a.py", wait_s=0
            )
            assert "ttl_s is 4" in await tools.refusal("lock_acquire", name="x", ttl_s=4)
            client.set_value(parent, "phase", {"n": 1})
        assert (await tools.get("kv_get", key="phase"))["value"] == {"n": 1}
        assert (await tools.get("kv_set", key="phase", value=None, if_version=1))["version"] == 2
        assert "has version 2" in await tools.refusal("kv_set", key="phase", value=3, if_version=1)
        assert [one["key"] for one in (await tools.get("kv_list"))["items"]] == ["phase"]
        assert (await tools.get("kv_delete", key="phase"))["deleted"] is True
        assert "has no value under 'phase'" in await tools.refusal("kv_get", key="phase")

    using(api.url, token, calls, child.id)


def test_guards_are_shown_and_reset(api) -> None:
    failed = GateResult(name="build", outcome="failed")
    with Client(api.url, TOKEN) as client:
        client.report_stop("mcp-1", StopReport(stop="one", gates=(failed,)))

    async def calls(tools: Tools) -> None:
        (guard,) = (await tools.get("cb_status", session="mcp-1"))["items"]
        assert (guard["retries"], guard["active"]) == ({"build": 1}, False)
        assert (await tools.get("cb_status"))["total"] >= 1
        assert "session" in await tools.refusal("cb_reset")
        assert await tools.get("cb_reset", session="mcp-1") == {"reset": 1}
        (guard,) = (await tools.get("cb_status", session="mcp-1"))["items"]
        assert guard["retries"] == {}

    using(api.url, TOKEN, calls)


REFUSED_CHECKERS = (
    ([{"command": "true", "clean": 1}], "checkers.0.clean is 1: use true or false"),
    ([{"command": "true", "clean": True, "writes": True}], "writes and clean exclude each other"),
    ([" "], "a checker must not be empty"),
    ([{"cmd": "true"}], "checkers.0.cmd is no field that is known here"),
)


def test_a_body_starts_one_child_however_often_it_asks(api, tmp_path) -> None:
    parent = api.submit()
    child, token = child_of(api, parent)
    full = {"command": "make test", "clean": True, "reruns": 2}
    wanted = {
        "task": "write it", "checkers": ["true", full], "command": "true", "cwd": str(tmp_path),
    }  # fmt: skip
    started: list[str] = []

    async def calls(tools: Tools) -> None:
        started.append((await tools.get("start_session", **wanted))["id"])
        started.append((await tools.get("start_session", **wanted))["id"])
        found = await tools.get("wait_session", session=started[0], timeout_s=0.1)
        assert (found["id"], found["status"]) == (started[0], "active")
        assert "timeout_s is 601" in await tools.refusal(
            "wait_session", session=started[0], timeout_s=601
        )
        assert "give doer or agent, not both" in await tools.refusal(
            "start_session", **wanted, agent="claude"
        )
        alone = {**wanted, "checkers": [{"command": "make mutants", "isolated": True}]}
        for checkers, why in REFUSED_CHECKERS:
            assert why in await tools.refusal("start_session", **{**wanted, "checkers": checkers})
        assert "worktree: true" in await tools.refusal("start_session", **alone)
        await tools.get("start_session", **alone, worktree=True)
        assert (await tools.get("explain", session=started[0]))["session"] == started[0]

    using(api.url, token, calls, child.id)
    assert started[0] == started[1]
    with Client(api.url, TOKEN) as client:
        assert client.session(started[0]).parent == child.id
    ref = api.engine.store.ref(started[0])
    assert ref is not None
    stored = json.loads(api.engine.store.copies().request(ref) or "")
    assert [{name: one[name] for name in full} for one in stored["checkers"]] == [
        {"command": "true", "clean": False, "reruns": 0}, full,
    ]  # fmt: skip


def put(api: Served, session: str) -> None:
    """Let the question of a session wait for its answer, as a worker does."""
    ref = api.engine.store.ref(session)
    assert ref is not None
    [grant] = api.engine.attempts.claim(ref, "ask", nonce=session, worker="w").grants
    assert park(api.engine, api.engine.attempts.work(ref, grant)) is None


def test_a_body_asks_a_person_once_and_gets_the_answer_later(api) -> None:
    child, token = child_of(api, api.submit())
    wanted = {
        "question": "Ship ${inputs.x}?", "choices": ["yes", "no"],
        "form": {"type": "object", "properties": {"why": {"type": "string"}}},
    }  # fmt: skip

    async def calls(tools: Tools) -> None:
        first = await tools.get("ask_human", **wanted, wait_s=0)
        assert (first["answered"], "again" in first["hint"]) == (False, True)
        put(api, first["session"])
        assert (await tools.get("ask_human", **wanted, wait_s=0))["session"] == first["session"]
        other = await tools.get("ask_human", **wanted, wait_s=0, key="second")
        assert other["session"] != first["session"]
        with Client(api.url, TOKEN) as client:
            [view] = client.questions(session=first["session"]).items
            assert (view.question, view.choices) == ("Ship ${inputs.x}?", ["yes", "no"])
            assert client.session(first["session"]).parent == child.id
            client.answer(first["session"], choice="yes", fields={"why": "it works"})
        found = await tools.get("ask_human", **wanted)
        assert found == {
            "answered": True, "session": first["session"], "status": "completed",
            "text": "yes\nwhy: it works", "choice": "yes", "fields": {"why": "it works"},
            "answered_by": "operator",
        }  # fmt: skip
        with Client(api.url, TOKEN) as client:
            client.abort(other["session"])
        again = await tools.refusal("ask_human", **wanted, key="second")
        assert again == f"there is no answer: session {other['session']} is aborted"
        assert "none of the choices" in await tools.refusal(
            "ask_human", question="?", choices=["a"], default={"text": "b"}
        )

    using(api.url, token, calls, child.id)


def test_outside_a_body_the_user_s_token_works_and_report_tools_say_whose_they_are(
    api, plan
) -> None:
    async def calls(tools: Tools) -> None:
        needs: Mapping[str, Mapping[str, Any]] = {
            "report_status": {"status": "done"},
            "update_task": {"status": "done"},
            "add_task": {"id": "x", "title": "X"},
            "notify_parent": {"status": "success", "message": "hi"},
            "exit": {"reason": "no"},
            "ask_human": {"question": "why?"},
        }
        for tool, given in needs.items():
            said = await tools.refusal(tool, **given)
            assert "belongs to a doer or checker inside a session" in said, tool
            assert "`leadhand " in said, tool
        assert "name one in session" in await tools.refusal("session_status")
        listed = (await tools.get("task_list", plan=plan.id))["items"]
        assert [one["id"] for one in listed] == ["a", "b"]
        changed = await tools.get("task_update", plan=plan.id, id="b", notes="after lunch")
        assert changed["notes"] == "after lunch"
        assert "status and pr_url are reported" in await tools.refusal(
            "task_update", plan=plan.id, id="b", status="done"
        )
        assert "no task" in (await tools.refusal("task_get", plan=plan.id, id="zz")).lower()
        assert (
            "not a session id"
            in (await tools.refusal("session_status", session="nothing-here")).lower()
        )
        with Client(api.url, TOKEN) as client:
            ended = client.submit(LOOP).id
            client.abort(ended)
        result = await tools.get("wait_session", session=ended)
        assert result["status"] == "aborted"

    using(api.url, TOKEN, calls)


def test_a_token_that_is_refused_is_a_sentence(api) -> None:
    session = api.submit()

    async def calls(tools: Tools) -> None:
        assert "token" in (await tools.refusal("session_status", session=session)).lower()

    using(api.url, "nobody's", calls)


def test_doctor_starts_the_server_and_calls_a_tool(api, monkeypatch) -> None:
    monkeypatch.setenv("LEADHAND_URL", api.url)
    finding = mcp_finding(api.url, TOKEN)
    assert finding.level == "ok", finding
    assert re.fullmatch(r"agents get \d\d tools of Leadhand", finding.text)


def test_doctor_names_why_the_server_does_not_start(api, monkeypatch, tmp_path) -> None:
    (tmp_path / "mcp.py").write_text("raise ImportError('the SDK is broken')")
    monkeypatch.setenv("LEADHAND_URL", api.url)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    finding = mcp_finding(api.url, TOKEN)
    assert finding.level == "fail"
    assert "the SDK is broken" in finding.text


def test_doctor_names_why_no_tool_can_be_called(api, monkeypatch) -> None:
    monkeypatch.setenv("LEADHAND_URL", api.url)
    finding = mcp_finding(api.url, "another's")
    assert finding.level == "fail"
    assert "token" in finding.text.lower()
