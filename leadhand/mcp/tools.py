"""The MCP tools: each calls the API with the token of the body, or of the user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel

from leadhand.callables import as_doer
from leadhand.client.client import AsyncClient
from leadhand.client.questions import answer_in, question_of
from leadhand.errors import LockLost, NoPlan, WaitTimedOut
from leadhand.loop import loop_document
from leadhand.mcp import arguments
from leadhand.models.plans import TaskStatus
from leadhand.models.views.plan import TaskView
from leadhand.models.views.shared import LockGrant

#: What a tool returns; it becomes one JSON object.
Result = BaseModel | Mapping[str, Any]


class ToolRefused(Exception):
    """A tool cannot do what it was asked; the message says why and what to do instead."""


class Tool(NamedTuple):
    """A tool: the model of its arguments, and what it does with them."""

    description: str
    arguments: type[arguments.Arguments]
    call: Callable[[Calls, Any], Awaitable[Result]]
    #: Whether it changes nothing.
    reads: bool = False


class Calls:
    """The calls of one server.

    Args:
        client: Has the token of a body or of a user.
        session: The session of the body that this server belongs to; None outside a body.
    """

    def __init__(self, client: AsyncClient, session: str | None) -> None:
        self._client = client
        self._session = session
        #: The grants of this server's locks, by session and name.
        self._grants: dict[tuple[str, str], LockGrant] = {}

    @property
    def client(self) -> AsyncClient:
        """Return the client of the API."""
        return self._client

    async def report(self, given: arguments.Report) -> Result:
        """Report the status of the session's task to the plan of its parent."""
        own = self._own("report_status", "`leadhand plan edit ID` changes a plan from outside")
        return await self._client.report(own, given.status, pr_url=given.pr_url, notes=given.notes)

    async def task_list(self, given: arguments.TaskList) -> Result:
        """List the tasks of a plan, optionally of one status."""
        tasks = await self._tasks(given.plan)
        wanted = [one for one in tasks if given.status in (None, one.status)]
        return {"items": [_dumped(one) for one in wanted]}

    async def task_get(self, given: arguments.TaskGet) -> Result:
        """Get one task of a plan, by default the session's own task."""
        if given.plan is not None:
            if given.id is None:
                raise ToolRefused("id is missing; name the task of the plan")
            return await self._client.plan_task(given.plan, given.id)
        own = self._own("task_get without a plan", "name the session of a plan in plan")
        tasks = await self._tasks(None)
        if given.id is None:
            return await self._client.own_task(own)
        found = next((one for one in tasks if one.id == given.id), None)
        if found is None:
            ids = ", ".join(one.id for one in tasks)
            raise ToolRefused(f"this session cannot see task {given.id!r}; it sees {ids}")
        return found

    async def task_update(self, given: arguments.TaskUpdate) -> Result:
        """Report a new status of the session's own task; with `plan` edit a task of that."""
        if given.plan is not None:
            return await self._edit(given, given.plan)
        own = self._own("task_update without a plan", "name the session of a plan in plan")
        if given.edits():
            names = ", ".join(given.edits())
            raise ToolRefused(
                f"{names}: only an edit of the plan changes this; report it in notes, or propose"
                " a task with add_task"
            )
        if given.id is None and given.status is not None:
            return await self._client.report(
                own, given.status, pr_url=given.pr_url, notes=given.notes
            )
        task = await self._client.own_task(own)
        if given.id not in (None, task.id):
            raise ToolRefused(
                f"{given.id!r} is not the task of this session, which is {task.id!r};"
                " a session reports about its own task alone"
            )
        status = given.status or _reportable(task)
        return await self._client.report(own, status, pr_url=given.pr_url, notes=given.notes)

    async def add_task(self, given: arguments.TaskAdd) -> Result:
        """Propose a task for the parent's plan."""
        own = self._own("add_task", "`leadhand plan edit ID` adds tasks from outside")
        status = _reportable(await self._client.own_task(own))
        task = given.model_dump(exclude={"why"}, exclude_none=True)
        return await self._client.report(own, status, proposals=[{"task": task, "why": given.why}])

    async def notify_parent(self, given: arguments.Notice) -> Result:
        """Put a message into the parent session's inbox."""
        own = self._own("notify_parent", "`leadhand hint ID TEXT` sends a message from outside")
        return await self._client.notify_parent(
            own, given.status, given.message, pr_number=given.pr_number
        )

    async def exit(self, given: arguments.Exit) -> Result:
        """End the session that the caller works in, because its task cannot succeed."""
        own = self._own("exit", "`leadhand stop ID` or `leadhand abort ID` ends one from outside")
        return await self._client.exit(own, given.reason)

    async def inbox(self, given: arguments.Inbox) -> Result:
        """List the messages of a session's inbox; with `take` mark them read and return them."""
        session = self._named("inbox", given.session)
        if given.take:
            taken = await self._client.take_messages(session)
            return {"items": [_dumped(one) for one in taken]}
        return await self._client.inbox(session, unread=given.unread)

    async def session_status(self, given: arguments.OneSession) -> Result:
        """Get a session with its status, by default the session that the caller works in."""
        return await self._client.session(self._named("session_status", given.session))

    async def explain(self, given: arguments.OneSession) -> Result:
        """Explain what a session waits for or why it ended, by default the caller's own session."""
        return await self._client.explain(self._named("explain", given.session))

    async def start_session(self, given: arguments.Start) -> Result:
        """Start a session that runs a loop of a doer and checkers; return it without waiting."""
        limits = given.model_dump(
            include={"max_iterations", "baseline", "label"}, exclude_none=True
        )
        try:
            document = loop_document(
                given.task,
                given.checkers,
                doer=as_doer(given.command, given.agent),
                cwd=given.cwd,
                **limits,
            )
        except ValueError as error:
            raise ToolRefused(str(error)) from None
        return await self._client.submit(document, given.key, on_parent_end=given.on_parent_end)

    async def ask_human(self, given: arguments.AskHuman) -> Result:
        """Ask a person by a child session and wait up to `wait_s` for the answer.

        Without one yet, return how to ask again.
        """
        self._own("ask_human", "`leadhand questions` lists what sessions ask")
        try:
            asked = question_of(
                given.question, given.rules, timeout_s=given.timeout_s, key=given.key
            )
        except ValueError as error:
            raise ToolRefused(str(error)) from None
        view = await self._client.submit(
            asked.document, asked.key, on_parent_end=asked.on_parent_end
        )
        try:
            await self._client.wait(view.id, given.wait_s)
        except WaitTimedOut:
            again = "there is no answer yet; call ask_human again with the same arguments"
            return {"answered": False, "session": view.id, "hint": again}
        view = await self._client.session(view.id)
        found = answer_in(view, (await self._client.steps(view.id)).items)
        if not found["answered"]:
            raise ToolRefused(f"there is no answer: session {view.id} is {view.status}")
        return found

    async def wait_session(self, given: arguments.Wait) -> Result:
        """Wait until a session ends or the timeout passes; return the session in either case."""
        try:
            return await self._client.wait(given.session, given.timeout_s)
        except WaitTimedOut:
            return await self._client.session(given.session)

    async def lock_acquire(self, given: arguments.LockAcquire) -> Result:
        """Take a named lock, waiting up to `wait_s`; extend it if this server holds it already."""
        session = self._named("lock_acquire", given.session)
        held = self._grants.get((session, given.name))
        if held is not None:
            with suppress(LockLost):
                renewed = await self._client.renew_lock(session, held, ttl_s=given.ttl_s)
                self._grants[session, given.name] = renewed
                return renewed
        grant = await self._client.acquire_lock(
            session, given.name, ttl_s=given.ttl_s, wait_s=given.wait_s
        )
        self._grants[session, given.name] = grant
        return grant

    async def lock_release(self, given: arguments.LockRelease) -> Result:
        """Release a named lock. Raises ToolRefused unless this server took it."""
        session = self._named("lock_release", given.session)
        held = self._grants.get((session, given.name))
        if held is None:
            raise ToolRefused(f"name: this agent did not take lock {given.name!r}; take it first")
        released = await self._client.release_lock(session, held)
        del self._grants[session, given.name]
        return {"name": given.name, "released": released}

    async def kv_get(self, given: arguments.KvGet) -> Result:
        """Read a value that the session's tree shares, by its key."""
        return await self._client.value(self._named("kv_get", given.session), given.key)

    async def kv_set(self, given: arguments.KvSet) -> Result:
        """Store a value that the session's tree shares; with `if_version` only if unchanged."""
        session = self._named("kv_set", given.session)
        return await self._client.set_value(
            session, given.key, given.value, if_version=given.if_version
        )

    async def kv_list(self, given: arguments.KvList) -> Result:
        """List the keys of at most 500 values that the session's tree shares, by prefix."""
        session = self._named("kv_list", given.session)
        return await self._client.values(session, prefix=given.prefix, limit=500)

    async def kv_delete(self, given: arguments.KvDelete) -> Result:
        """Delete a value that the session's tree shares; with `if_version` only if unchanged."""
        session = self._named("kv_delete", given.session)
        await self._client.delete_value(session, given.key, if_version=given.if_version)
        return {"key": given.key, "deleted": True}

    async def cb_status(self, given: arguments.CbStatus) -> Result:
        """List the Stop guards with their failure counters, of one agent session or of all."""
        return await self._client.guards(given.session)

    async def cb_reset(self, given: arguments.CbReset) -> Result:
        """Set the failure counters of Stop guards to 0, of one agent session or of all."""
        return await self._client.reset_guards(given.session)

    async def _tasks(self, plan: str | None) -> list[TaskView]:
        """The tasks of a plan; without one, those of this session's plan, or its own task."""
        if plan is not None:
            return await self._client.plan_tasks(plan)
        own = self._own("a list without a plan", "name the session of a plan in plan")
        try:
            return await self._client.plan_tasks(own)
        except NoPlan:
            return [await self._client.own_task(own)]

    async def _edit(self, given: arguments.TaskUpdate, plan: str) -> Result:
        if given.id is None:
            raise ToolRefused("id is missing; name the task of the plan")
        if given.status is not None or given.pr_url is not None:
            raise ToolRefused(
                "status and pr_url are reported by the task's own session; leave out plan there"
            )
        notes = {} if given.notes is None else {"notes": given.notes}
        operation = {"op": "change", "id": given.id, **given.edits(), **notes}
        await self._client.edit_plan(plan, [operation])
        return await self._client.plan_task(plan, given.id)

    def _own(self, what: str, instead: str) -> str:
        if self._session is None:
            raise ToolRefused(
                f"{what} belongs to a doer or checker inside a session, and LEADHAND_SESSION is"
                f" not set here; {instead}"
            )
        return self._session

    def _named(self, tool: str, session: str | None) -> str:
        return session or self._own(f"{tool} without a session", "name one in session")


def _reportable(task: TaskView) -> str:
    """The task's status, to be reported again with something new."""
    return task.status if task.status in get_args(TaskStatus) else "in_progress"


def _dumped(view: BaseModel) -> dict[str, Any]:
    return view.model_dump(mode="json")


_REPORT = "Report the status of this session's own task to the plan of its team lead."

#: The tools by name, in the order in which they are listed.
TOOLS: Mapping[str, Tool] = {
    "report_status": Tool(_REPORT, arguments.Report, Calls.report),
    "update_task": Tool(f"{_REPORT[:-1]}, as report_status.", arguments.Report, Calls.report),
    "task_list": Tool(
        "List the tasks of a plan, or the own task of a session that carries one out.",
        arguments.TaskList,
        Calls.task_list,
        reads=True,
    ),
    "task_get": Tool(
        "Get one task with its status, its session and its history.",
        arguments.TaskGet,
        Calls.task_get,
        reads=True,
    ),
    "task_update": Tool(
        "Report about the own task, or with plan change a task of a plan that you may edit.",
        arguments.TaskUpdate,
        Calls.task_update,
    ),
    "add_task": Tool(
        "Propose a task for the plan that the own task belongs to.",
        arguments.TaskAdd,
        Calls.add_task,
    ),
    "notify_parent": Tool(
        "Send a message to the parent session, whose next turn begins with it.",
        arguments.Notice,
        Calls.notify_parent,
    ),
    "exit": Tool(
        "End the own session because its task cannot succeed.", arguments.Exit, Calls.exit
    ),
    "ask_human": Tool(
        "Ask a person and wait for the answer; the same question again is not asked twice.",
        arguments.AskHuman,
        Calls.ask_human,
    ),
    "inbox": Tool(
        "List the messages of a session's inbox.", arguments.Inbox, Calls.inbox
    ),
    "lock_acquire": Tool(
        "Take a named lock of the tree of sessions, or renew it; others that want it wait. It is"
        " freed with the attempt, and once its time is over.",
        arguments.LockAcquire,
        Calls.lock_acquire,
    ),
    "lock_release": Tool(
        "Release a named lock. `released` is false if its time was over: another one may have had"
        " it meanwhile.",
        arguments.LockRelease,
        Calls.lock_release,
    ),
    "kv_get": Tool(
        "Read a value that the tree of sessions shares, with its version.",
        arguments.KvGet,
        Calls.kv_get,
        reads=True,
    ),
    "kv_set": Tool(
        "Store a value for the tree of sessions; with if_version only if it is unchanged.",
        arguments.KvSet,
        Calls.kv_set,
    ),
    "kv_list": Tool(
        "List the keys of the values that the tree of sessions shares.",
        arguments.KvList,
        Calls.kv_list,
        reads=True,
    ),
    "kv_delete": Tool(
        "Delete a value that the tree of sessions shares.", arguments.KvDelete, Calls.kv_delete
    ),
    "cb_status": Tool(
        "Show the counters of Stop guards: failures by gate, limits, and whether a hook runs.",
        arguments.CbStatus,
        Calls.cb_status,
        reads=True,
    ),
    "cb_reset": Tool(
        "Begin the counters of Stop guards again, of one session of an agent or of all.",
        arguments.CbReset,
        Calls.cb_reset,
    ),
    "session_status": Tool(
        "Get a session with its status, reason and costs.",
        arguments.OneSession,
        Calls.session_status,
        reads=True,
    ),
    "start_session": Tool(
        "Start a loop of a doer and checkers; inside a session it is a child of that session.",
        arguments.Start,
        Calls.start_session,
    ),
    "wait_session": Tool(
        "Wait for the end of a session and get its result, or its status once the time is up.",
        arguments.Wait,
        Calls.wait_session,
        reads=True,
    ),
    "explain": Tool(
        "Explain why a session waits or why it ended, and what to do next.",
        arguments.OneSession,
        Calls.explain,
        reads=True,
    ),
}  # fmt: skip
