"""The MCP tools: each calls the API with the token of the body, or of the user."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, Field, JsonValue

from leadhand.callables import as_doer
from leadhand.client.questions import ASK_TIMEOUT_S, answer_in, question_of
from leadhand.errors import LockLost, NoPlan, WaitTimedOut
from leadhand.flows.structure import LONGEST_WAIT_S as LONGEST_WAIT_FOR_A_PERSON_S
from leadhand.loop import loop_document
from leadhand.mcp.tool import (
    Calls,
    Function,
    Result,
    Session,
    Tool,
    ToolRefused,
    derived_tools,
    tool_of,
)
from leadhand.models import patterns
from leadhand.models.documents import Checker, Command, Name, Text
from leadhand.models.forms import AnswerRules, Form, GivenAnswer, Options
from leadhand.models.guards import AgentSession
from leadhand.models.plans import TaskId, TaskStatus
from leadhand.models.views.plan import TaskView

#: Seconds that `wait_session` waits at most, and by default. Agents give up on a tool
#: that does not answer for about a minute.
LONGEST_WAIT_S, WAIT_S = 600.0, 45.0

#: The tools by name, in the order in which they are listed.
TOOLS: dict[str, Tool] = {}


def _tool(*, name: str = "", reads: bool = False) -> Callable[[Function], Function]:
    """Declares a tool of the function's name, or of another one."""

    def declare(function: Function) -> Function:
        TOOLS[name or function.__name__] = tool_of(function, reads=reads)
        return function

    return declare


def _read_synonyms(value: object) -> object:
    if isinstance(value, str):
        word = value.strip().lower()
        return {"complete": "completed", "done": "completed"}.get(word, word)
    return value


Plan = Annotated[
    str | None,
    Field(description="The session of a plan; leave it out for your own task.", min_length=1),
]
Synonyms = BeforeValidator(_read_synonyms)
Status = Annotated[
    TaskStatus,
    Synonyms,
    Field(description="How the task stands; `complete` and `done` are `completed`."),
]
Notes = Annotated[
    str,
    Field(
        min_length=1,
        max_length=10_000,
        description="What the team lead should know; why, for failed and blocked.",
    ),
]
PrUrl = Annotated[
    str,
    Field(pattern=patterns.URL, max_length=2_000, description="The pull request with the work."),
]
Told = Annotated[str, Field(min_length=1, max_length=50_000)]
#: A checker reads its text itself; the schema says that it may be one.
TextOrChecker = Annotated[
    Checker, BeforeValidator(lambda given: given, json_schema_input_type=Text | Checker)
]
OwnTask = Annotated[TaskId | None, Field(description="The task; by default your own.")]
Title = Annotated[str, Field(min_length=1, max_length=200)]
Description = Annotated[str, Field(max_length=50_000)]
Dependencies = Field(description="The tasks that must be accepted first.")
LockName = Annotated[
    str,
    Field(
        pattern=patterns.SHARED_NAME,
        description="The name of the lock within the tree of sessions, such as a path.",
    ),
]
Key = Annotated[
    str,
    Field(pattern=patterns.SHARED_NAME, description="The key within the tree of sessions."),
]
IfVersion = Annotated[
    int | None,
    Field(ge=0, description="Only if this is the version as it is now; 0: if there is no value."),
]


@_tool()
async def report_status(
    calls: Calls, status: Status, pr_url: PrUrl | None = None, notes: Notes | None = None
) -> Result:
    """Report the status of this session's own task to the plan of its team lead."""
    own = calls.own("report_status", "`leadhand plan edit ID` changes a plan from outside")
    return await calls.client.report(own, status, pr_url=pr_url, notes=notes)


@_tool()
async def update_task(
    calls: Calls, status: Status, pr_url: PrUrl | None = None, notes: Notes | None = None
) -> Result:
    """Report the status of this session's own task to its team lead, as report_status."""
    return await report_status(calls, status, pr_url, notes)


@_tool(reads=True)
async def task_list(
    calls: Calls,
    plan: Plan = None,
    status: Annotated[
        TaskStatus | None, Synonyms, Field(description="Only tasks with this status.")
    ] = None,
) -> Result:
    """List the tasks of a plan, or the own task of a session that carries one out."""
    wanted = [one for one in await _tasks(calls, plan) if status in (None, one.status)]
    return {"items": [_dumped(one) for one in wanted]}


@_tool(reads=True)
async def task_get(calls: Calls, id: OwnTask = None, plan: Plan = None) -> Result:
    """Get one task with its status, its session and its history."""
    if plan is not None:
        if id is None:
            raise ToolRefused("id is missing; name the task of the plan")
        return await calls.client.plan_task(plan, id)
    own = calls.own("task_get without a plan", "name the session of a plan in plan")
    tasks = await _tasks(calls, None)
    if id is None:
        return await calls.client.own_task(own)
    found = next((one for one in tasks if one.id == id), None)
    if found is None:
        ids = ", ".join(one.id for one in tasks)
        raise ToolRefused(f"this session cannot see task {id!r}; it sees {ids}")
    return found


@_tool()
async def task_update(
    calls: Calls,
    id: OwnTask = None,
    plan: Plan = None,
    status: Status | None = None,
    pr_url: PrUrl | None = None,
    notes: Notes | None = None,
    title: Title | None = None,
    description: Description | None = None,
    dependencies: Annotated[list[TaskId] | None, Dependencies] = None,
    priority: Annotated[int | None, Field(ge=0, le=9, description="0 is first and 9 is last.")] = (
        None
    ),
) -> Result:
    """Report about the own task, or with plan change a task of a plan that you may edit."""
    fields = {"title": title, "description": description, "dependencies": dependencies}
    edits = {name: one for name, one in {**fields, "priority": priority}.items() if one is not None}
    if plan is not None:
        if id is None:
            raise ToolRefused("id is missing; name the task of the plan")
        if status is not None or pr_url is not None:
            raise ToolRefused(
                "status and pr_url are reported by the task's own session; leave out plan there"
            )
        more = {} if notes is None else {"notes": notes}
        await calls.client.edit_plan(plan, [{"op": "change", "id": id, **edits, **more}])
        return await calls.client.plan_task(plan, id)
    own = calls.own("task_update without a plan", "name the session of a plan in plan")
    if edits:
        raise ToolRefused(
            f"{', '.join(edits)}: only an edit of the plan changes this; report it in notes, or"
            " propose a task with add_task"
        )
    if id is not None or status is None:
        task = await calls.client.own_task(own)
        if id not in (None, task.id):
            raise ToolRefused(
                f"{id!r} is not the task of this session, which is {task.id!r};"
                " a session reports about its own task alone"
            )
        status = status or _reportable(task)
    return await calls.client.report(own, status, pr_url=pr_url, notes=notes)


@_tool()
async def add_task(
    calls: Calls,
    id: Annotated[
        TaskId, Field(description="A short name of lower-case letters, digits, - and _.")
    ],
    title: Title,
    description: Description = "",
    dependencies: Annotated[list[TaskId], Dependencies] = [],  # noqa: B006 - it is copied
    checkers: Annotated[
        list[Name] | None,
        Field(min_length=1, description="Names of the plan's checkers; by default all of them."),
    ] = None,
    why: Annotated[str, Field(max_length=2_000, description="Why the plan should get it.")] = "",
) -> Result:
    """Propose a task for the plan that the own task belongs to."""
    own = calls.own("add_task", "`leadhand plan edit ID` adds tasks from outside")
    status = _reportable(await calls.client.own_task(own))
    task = {"id": id, "title": title, "description": description, "dependencies": dependencies}
    more = {} if checkers is None else {"checkers": checkers}
    proposal = {"task": {**task, **more}, "why": why}
    return await calls.client.report(own, status, proposals=[proposal])


@_tool(name="exit")
async def exit_session(
    calls: Calls, reason: Annotated[Told, Field(description="Why the task cannot succeed.")]
) -> Result:
    """End the own session because its task cannot succeed."""
    own = calls.own("exit", "`leadhand stop ID` or `leadhand abort ID` ends one from outside")
    return await calls.client.exit(own, reason)


@_tool()
async def ask_human(
    calls: Calls,
    question: Annotated[Text, Field(description="What a person is to decide or to tell.")],
    choices: Annotated[
        Options | None, Field(description="The answer is one of these; by default any text.")
    ] = None,
    form: Annotated[
        Form | None, Field(description="The fields of the answer, as a JSON Schema.")
    ] = None,
    default: Annotated[
        GivenAnswer | None, Field(description="The answer if no person gives one in time.")
    ] = None,
    timeout_s: Annotated[
        float,
        Field(gt=0, le=LONGEST_WAIT_FOR_A_PERSON_S, description="How long a person may take."),
    ] = ASK_TIMEOUT_S,
    wait_s: Annotated[
        float,
        Field(ge=0, le=LONGEST_WAIT_S, description="How long this call waits; then call it again."),
    ] = WAIT_S,
    key: Annotated[
        str | None,
        Field(
            min_length=1, max_length=100,
            description="The same question with another key is asked again.",
        ),
    ] = None,
) -> Result:  # fmt: skip
    """Ask a person and wait for the answer; the same question again is not asked twice."""
    calls.own("ask_human", "`leadhand questions` lists what sessions ask")
    rules = AnswerRules(form=form, choices=choices, default=default)
    given = rules.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    try:
        asked = question_of(question, given, timeout_s=timeout_s, key=key)
    except ValueError as error:
        raise ToolRefused(str(error)) from None
    client = calls.client
    view = await client.submit(asked.document, asked.key, on_parent_end=asked.on_parent_end)
    try:
        await client.wait(view.id, wait_s)
    except WaitTimedOut:
        again = "there is no answer yet; call ask_human again with the same arguments"
        return {"answered": False, "session": view.id, "hint": again}
    view = await client.session(view.id)
    found = answer_in(view, (await client.steps(view.id)).items)
    if not found["answered"]:
        raise ToolRefused(f"there is no answer: session {view.id} is {view.status}")
    return found


@_tool()
async def inbox(
    calls: Calls,
    session: Session = None,
    unread: Annotated[bool, Field(description="Only messages that nobody has read.")] = True,
    take: Annotated[
        bool, Field(description="Mark the messages as read: no later turn gets them.")
    ] = False,
) -> Result:
    """List the messages of a session's inbox."""
    session = calls.named("inbox", session)
    if take:
        return {"items": [_dumped(one) for one in await calls.client.take_messages(session)]}
    return await calls.client.inbox(session, unread=unread)


@_tool()
async def lock_acquire(
    calls: Calls,
    name: LockName,
    ttl_s: Annotated[
        float,
        Field(ge=5, le=3600, description="For how long; the same call again renews the lock."),
    ] = 300.0,
    wait_s: Annotated[
        float, Field(ge=0, le=LONGEST_WAIT_S, description="How long to wait if it is taken.")
    ] = WAIT_S,
    session: Session = None,
) -> Result:
    """Take a named lock of the tree of sessions, or renew it; others that want it wait.

    It is freed with the attempt, and once its time is over.
    """
    session = calls.named("lock_acquire", session)
    held = calls.grants.get((session, name))
    if held is not None:
        with suppress(LockLost):
            renewed = await calls.client.renew_lock(session, held, ttl_s=ttl_s)
            calls.grants[session, name] = renewed
            return renewed
    grant = await calls.client.acquire_lock(session, name, ttl_s=ttl_s, wait_s=wait_s)
    calls.grants[session, name] = grant
    return grant


@_tool()
async def lock_release(calls: Calls, name: LockName, session: Session = None) -> Result:
    """Release a named lock.

    `released` is false if its time was over: another one may have had it meanwhile.
    """
    session = calls.named("lock_release", session)
    held = calls.grants.get((session, name))
    if held is None:
        raise ToolRefused(f"name: this agent did not take lock {name!r}; take it first")
    released = await calls.client.release_lock(session, held)
    del calls.grants[session, name]
    return {"name": name, "released": released}


@_tool(reads=True)
async def kv_get(calls: Calls, key: Key, session: Session = None) -> Result:
    """Read a value that the tree of sessions shares, with its version."""
    return await calls.client.value(calls.named("kv_get", session), key)


@_tool()
async def kv_set(
    calls: Calls,
    key: Key,
    value: Annotated[JsonValue, Field(description="Any JSON, of at most 64 KiB.")],
    if_version: IfVersion = None,
    session: Session = None,
) -> Result:
    """Store a value for the tree of sessions; with if_version only if it is unchanged."""
    session = calls.named("kv_set", session)
    return await calls.client.set_value(session, key, value, if_version=if_version)


@_tool(reads=True)
async def kv_list(
    calls: Calls,
    prefix: Annotated[str, Field(max_length=200, description="Only keys that begin so.")] = "",
    session: Session = None,
) -> Result:
    """List the keys of the values that the tree of sessions shares."""
    session = calls.named("kv_list", session)
    return await calls.client.values(session, prefix=prefix, limit=500)


@_tool()
async def kv_delete(
    calls: Calls, key: Key, if_version: IfVersion = None, session: Session = None
) -> Result:
    """Delete a value that the tree of sessions shares."""
    session = calls.named("kv_delete", session)
    await calls.client.delete_value(session, key, if_version=if_version)
    return {"key": key, "deleted": True}


@_tool(reads=True)
async def cb_status(
    calls: Calls,
    session: Annotated[
        AgentSession | None,
        Field(description="Only this session of an agent, such as Claude Code's session_id."),
    ] = None,
) -> Result:
    """Show the counters of Stop guards: failures by gate, limits, and whether a hook runs."""
    return await calls.client.guards(session)


@_tool()
async def cb_reset(
    calls: Calls,
    session: Annotated[
        AgentSession | None, Field(description="The session of an agent whose guard is reset.")
    ] = None,
    all: Annotated[bool, Field(description="Reset the guards of all agents.")] = False,
) -> Result:
    """Begin the counters of Stop guards again, of one session of an agent or of all."""
    if (session is None) != all:
        raise ToolRefused("name an agent's session in session, or set all to true")
    return await calls.client.reset_guards(session)


@_tool()
async def start_session(
    calls: Calls,
    task: Annotated[Text, Field(description="What the doer is to do.")],
    checkers: Annotated[
        list[TextOrChecker],
        Field(
            min_length=1,
            max_length=100,
            description="Shell commands, `agent: what to judge` or `agent(NAME): ...`; or objects"
            ' with more settings: {"command": "make test", "clean": true}.',
        ),
    ],
    agent: Annotated[Name | None, Field(description="The agent that does the task.")] = None,
    command: Annotated[
        Command | None, Field(description="A shell command that does it instead of an agent.")
    ] = None,
    cwd: Annotated[
        str | None, Field(min_length=1, description="The folder; by default the current one.")
    ] = None,
    max_iterations: Annotated[int | None, Field(ge=1, le=10_000)] = None,
    baseline: Annotated[
        bool | None,
        Field(description="Whether its commands also run once before the work (true)."),
    ] = None,
    worktree: Annotated[
        bool | None,
        Field(description="Whether it works in a worktree or copy of its own (false)."),
    ] = None,
    label: Annotated[str | None, Field(min_length=1, max_length=120)] = None,
    key: Annotated[
        str | None,
        Field(min_length=1, max_length=200, description="The same key is the same session."),
    ] = None,
    on_parent_end: Annotated[
        Literal["abort", "let-go-on"] | None,
        Field(description="What becomes of a child session once its parent step has ended."),
    ] = None,
) -> Result:
    """Start a loop of a doer and checkers; inside a session it is a child of that session."""
    named = {
        "max_iterations": max_iterations, "baseline": baseline, "worktree": worktree,
        "label": label,
    }  # fmt: skip
    limits: dict[str, Any] = {name: one for name, one in named.items() if one is not None}
    try:
        document = loop_document(task, checkers, doer=as_doer(command, agent), cwd=cwd, **limits)
    except ValueError as error:
        raise ToolRefused(str(error)) from None
    return await calls.client.submit(document, key, on_parent_end=on_parent_end)


@_tool(reads=True)
async def wait_session(
    calls: Calls,
    session: Annotated[str, Field(min_length=1, description="The id of a session.")],
    timeout_s: Annotated[
        float, Field(ge=0, le=LONGEST_WAIT_S, description="How long to wait, in seconds.")
    ] = WAIT_S,
) -> Result:
    """Wait for the end of a session and get its result, or its status once the time is up."""
    try:
        return await calls.client.wait(session, timeout_s)
    except WaitTimedOut:
        return await calls.client.session(session)


TOOLS.update(derived_tools())


async def _tasks(calls: Calls, plan: str | None) -> list[TaskView]:
    """The tasks of a plan; without one, those of this session's plan, or its own task."""
    if plan is not None:
        return await calls.client.plan_tasks(plan)
    own = calls.own("a list without a plan", "name the session of a plan in plan")
    try:
        return await calls.client.plan_tasks(own)
    except NoPlan:
        return [await calls.client.own_task(own)]


def _reportable(task: TaskView) -> TaskStatus:
    """The task's status, to be reported again with something new."""
    return next((one for one in get_args(TaskStatus) if one == task.status), "in_progress")


def _dumped(view: BaseModel) -> dict[str, Any]:
    return view.model_dump(mode="json")
