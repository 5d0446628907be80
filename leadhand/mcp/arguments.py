"""The arguments of each MCP tool; their JSON schemas are what an agent sees."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from leadhand.client.questions import ASK_TIMEOUT_S
from leadhand.flows.steps import LONGEST_WAIT_S as LONGEST_WAIT_FOR_A_PERSON_S
from leadhand.models import patterns
from leadhand.models.documents import Command, Name, Text
from leadhand.models.forms import AnswerRules, Form, GivenAnswer, Options
from leadhand.models.guards import AgentSession
from leadhand.models.plans import TaskId, TaskStatus

#: Seconds that `wait_session` waits at most, and by default. Agents give up on a tool
#: that does not answer for about a minute.
LONGEST_WAIT_S, WAIT_S = 600.0, 45.0

Session = Annotated[
    str | None, Field(description="The id of a session; by default the own one.", min_length=1)
]
Plan = Annotated[
    str | None,
    Field(description="The session of a plan; leave it out for your own task.", min_length=1),
]
Status = Annotated[
    TaskStatus, Field(description="How the task stands; `complete` and `done` are `completed`.")
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


class Arguments(BaseModel):
    """Frozen; an unknown argument is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


class _Synonyms(Arguments):
    """A model with a task's status."""

    @field_validator("status", mode="before", check_fields=False)
    @classmethod
    def _read_synonyms(cls, value: object) -> object:
        if isinstance(value, str):
            word = value.strip().lower()
            return {"complete": "completed", "done": "completed"}.get(word, word)
        return value


class Report(_Synonyms):
    status: Status
    pr_url: PrUrl | None = None
    notes: Notes | None = None


class TaskList(_Synonyms):
    plan: Plan = None
    status: Annotated[TaskStatus | None, Field(description="Only tasks with this status.")] = None


class TaskGet(Arguments):
    id: Annotated[TaskId | None, Field(description="The task; by default your own.")] = None
    plan: Plan = None


class TaskUpdate(_Synonyms):
    id: Annotated[TaskId | None, Field(description="The task; by default your own.")] = None
    plan: Plan = None
    status: Status | None = None
    pr_url: PrUrl | None = None
    notes: Notes | None = None
    title: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    description: Annotated[str, Field(max_length=50_000)] | None = None
    dependencies: Annotated[
        list[TaskId] | None, Field(description="The tasks that must be accepted first.")
    ] = None
    priority: Annotated[int | None, Field(ge=0, le=9, description="0 is first and 9 is last.")] = (
        None
    )

    def edits(self) -> dict[str, object]:
        """Return the given title, description, dependencies and priority of the task, by name."""
        names = {"title", "description", "dependencies", "priority"}
        return self.model_dump(include=names, exclude_none=True)


class TaskAdd(Arguments):
    id: Annotated[TaskId, Field(description="A short name of lower-case letters, digits, - and _.")]
    title: Annotated[str, Field(min_length=1, max_length=200)]
    description: Annotated[str, Field(max_length=50_000)] = ""
    dependencies: Annotated[
        list[TaskId], Field(description="The tasks that must be accepted first.")
    ] = []
    checkers: Annotated[
        list[Name] | None,
        Field(min_length=1, description="Names of the plan's checkers; by default all of them."),
    ] = None
    why: Annotated[str, Field(max_length=2_000, description="Why the plan should get it.")] = ""


class Notice(Arguments):
    status: Annotated[
        Literal["success", "failure"], Field(description="A failure calls for a person.")
    ]
    message: Annotated[Told, Field(description="The whole message.")]
    pr_number: Annotated[int | None, Field(ge=1)] = None


class Exit(Arguments):
    reason: Annotated[Told, Field(description="Why the task cannot succeed.")]


class Inbox(Arguments):
    session: Session = None
    unread: Annotated[bool, Field(description="Only messages that nobody has read.")] = True
    take: Annotated[
        bool, Field(description="Mark the messages as read: no later turn gets them.")
    ] = False


class OneSession(Arguments):
    session: Session = None


class Start(Arguments):
    task: Annotated[Text, Field(description="What the doer is to do.")]
    checkers: Annotated[
        list[Text],
        Field(
            min_length=1,
            max_length=100,
            description="Shell commands, `agent: what to judge` or `agent(NAME): ...`.",
        ),
    ]
    agent: Annotated[Name | None, Field(description="The agent that does the task.")] = None
    command: Annotated[
        Command | None, Field(description="A shell command that does it instead of an agent.")
    ] = None
    cwd: Annotated[
        str | None, Field(min_length=1, description="The folder; by default the current one.")
    ] = None
    max_iterations: Annotated[int | None, Field(ge=1, le=10_000)] = None
    baseline: Annotated[
        bool | None,
        Field(description="Whether its commands also run once before the work (true)."),
    ] = None
    label: Annotated[str | None, Field(min_length=1, max_length=120)] = None
    key: Annotated[
        str | None,
        Field(min_length=1, max_length=200, description="The same key is the same session."),
    ] = None
    on_parent_end: Annotated[
        Literal["abort", "let-go-on"] | None,
        Field(description="What becomes of a child session once its parent step has ended."),
    ] = None


class AskHuman(Arguments):
    question: Annotated[Text, Field(description="What a person is to decide or to tell.")]
    choices: Annotated[
        Options | None, Field(description="The answer is one of these; by default any text.")
    ] = None
    form: Annotated[
        Form | None, Field(description="The fields of the answer, as a JSON Schema.")
    ] = None
    default: Annotated[
        GivenAnswer | None, Field(description="The answer if no person gives one in time.")
    ] = None
    timeout_s: Annotated[
        float,
        Field(gt=0, le=LONGEST_WAIT_FOR_A_PERSON_S, description="How long a person may take."),
    ] = ASK_TIMEOUT_S
    wait_s: Annotated[
        float,
        Field(ge=0, le=LONGEST_WAIT_S, description="How long this call waits; then call it again."),
    ] = WAIT_S
    key: Annotated[
        str | None,
        Field(
            min_length=1, max_length=100,
            description="The same question with another key is asked again.",
        ),
    ] = None  # fmt: skip

    @property
    def rules(self) -> dict[str, object]:
        """Return which answers the question accepts, as JSON."""
        rules = AnswerRules(form=self.form, choices=self.choices, default=self.default)
        return rules.model_dump(mode="json", exclude_unset=True, exclude_none=True)


class Wait(Arguments):
    session: Annotated[str, Field(min_length=1, description="The id of a session.")]
    timeout_s: Annotated[
        float, Field(ge=0, le=LONGEST_WAIT_S, description="How long to wait, in seconds.")
    ] = WAIT_S


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


class LockAcquire(Arguments):
    name: LockName
    ttl_s: Annotated[
        float,
        Field(ge=5, le=3600, description="For how long; the same call again renews the lock."),
    ] = 300.0
    wait_s: Annotated[
        float, Field(ge=0, le=LONGEST_WAIT_S, description="How long to wait if it is taken.")
    ] = WAIT_S
    session: Session = None


class LockRelease(Arguments):
    name: LockName
    session: Session = None


class KvGet(Arguments):
    key: Key
    session: Session = None


class KvSet(Arguments):
    key: Key
    value: Annotated[JsonValue, Field(description="Any JSON, of at most 64 KiB.")]
    if_version: IfVersion = None
    session: Session = None


class KvList(Arguments):
    prefix: Annotated[str, Field(max_length=200, description="Only keys that begin so.")] = ""
    session: Session = None


class KvDelete(Arguments):
    key: Key
    if_version: IfVersion = None
    session: Session = None


class CbStatus(Arguments):
    session: Annotated[
        AgentSession | None,
        Field(description="Only this session of an agent, such as Claude Code's session_id."),
    ] = None


class CbReset(Arguments):
    session: Annotated[
        AgentSession | None, Field(description="The session of an agent whose guard is reset.")
    ] = None
    all: Annotated[bool, Field(description="Reset the guards of all agents.")] = False

    @model_validator(mode="after")
    def _names_one_or_all(self) -> CbReset:
        if (self.session is None) != self.all:
            raise ValueError("name an agent's session in session, or set all to true")
        return self
