"""Views of the fleet: workers, agents, tools, queues and limits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from leadhand.models.views.view import View


class Running(View):
    """An attempt that a worker is running."""

    session: str
    address: str
    action: str
    label: str
    queue: str
    attempt: int
    #: The worker's process.
    process: str
    since: str | None = None


class UsableHere(View):
    """Whether a worker can use an agent or tool, and what it depends on."""

    #: Why it cannot be used there, and what to do about it.
    why_not: str | None = None
    #: What of the worker's environment it lacks there, which a session may bring.
    lacks: Literal["program", "variable"] | None = None
    #: The program that is looked up on the PATH; null for a path.
    program: str | None = None
    #: The variables without which it cannot run.
    needs_env: list[str] = []


class _Agent(View):
    """An agent's entry."""

    name: str
    kind: Literal["command", "model", "callable"]
    #: Its command, model or function, for display.
    command: str
    #: Whether a step may choose its model.
    takes_model: bool = False
    #: Whether it can resume a conversation.
    remembers: bool = False
    #: Whether the conversation that it resumes stays as it is, and continues in a copy.
    forks: bool = False
    #: Whether it can resume a conversation only in the folder where it began.
    keeps_to_folder: bool = False
    #: Whether its cost is known, because it reports one or has prices; null if its entry is broken.
    knows_cost: bool | None = None
    #: The variables that it gets beside those of every body.
    env: list[str] = []


class AgentHere(_Agent, UsableHere):
    """An agent of one worker."""


class AgentsFault(View):
    """An error in an agents file: it disables one agent, or all of the file."""

    #: The file, its line, the key and the fix, in one sentence.
    text: str
    #: The agent that cannot be used; absent if the whole file is invalid.
    agent: str | None = None


class AgentView(_Agent):
    """An agent, and the places where it can be used."""

    #: Whether it is the default agent.
    default: bool = False
    #: The variables without which it cannot run.
    needs_env: list[str] = []
    usable_at: list[str] = []
    #: By place: why it cannot be used there, and what to do about it.
    why_not: dict[str, str] = {}


#: What a tool is.
ToolKind = Literal["function", "built-in", "command", "http", "mcp", "agent", "flow"]


class ToolParameter(View):
    """One argument of a tool."""

    name: str
    #: The annotation of the parameter, as written.
    annotation: str | None = None
    required: bool = True


class ToolHere(UsableHere):
    """A tool of one worker."""

    #: `module:function`, or the name of another kind of tool; for an invalid file, the module.
    name: str
    kind: ToolKind = "function"
    #: The first paragraph of its docstring, or its description.
    about: str = ""
    parameters: list[ToolParameter] = []
    #: Whether it takes arguments of any name.
    takes_any: bool = False
    #: The JSON Schema of the object of its arguments; empty if its worker does not report one.
    input_schema: dict[str, JsonValue] = {}
    #: For a function that runs in the worker's own process: the most seconds that a call may take.
    inline_s: float | None = None


class ToolView(View):
    """A tool, and the places where it can be used."""

    name: str
    kind: ToolKind = "function"
    about: str = ""
    parameters: list[ToolParameter] = []
    takes_any: bool = False
    #: The JSON Schema of the object of its arguments; empty if its worker does not report one.
    input_schema: dict[str, JsonValue] = {}
    #: For a function that runs in the worker's own process: the most seconds that a call may take.
    inline_s: float | None = None
    usable_at: list[str] = []
    #: By place: why it cannot be used there, and what to do about it.
    why_not: dict[str, str] = {}


class WorkerView(View):
    """A live worker, as its inventory describes it."""

    name: str
    place: str
    #: The queues that it is configured to consume.
    queues: list[str] = []
    #: The queues that it consumes now; null if it does not report that.
    consumes: list[str] | None = None
    agents: list[str] = []
    #: Its agents, with whether each can be used.
    agents_here: list[AgentHere] = []
    #: The errors in its agents files.
    agents_faults: list[AgentsFault] = []
    #: Its tools, without the built-in ones.
    tools_here: list[ToolHere] = []
    #: The default agent.
    default_agent: str | None = None
    roots: list[str] = []
    concurrency: int = 0
    #: The processes that it keeps for attempts; more start on demand, up to its concurrency.
    idle_processes: int | None = None
    #: The load average of its machine over the last minute, and the number of its cores.
    load: float | None = None
    cores: int | None = None
    #: The newest program schema that it can run.
    schema_version: int = 1
    pid: int = 0
    host: str = ""
    #: Its PATH.
    path: str | None = None
    seen_at: str | None = None
    #: The attempts that it is running; only in views of the fleet.
    running: list[Running] = []
    #: Troubles that keep it from working, such as a full disk.
    troubles: list[str] = []
    #: Of a program that carries out the local steps of its own session: that session.
    session: str | None = None

    @property
    def not_taken(self) -> list[str]:
        """Return the queues that the worker should consume and does not; empty if unknown."""
        if self.consumes is None:
            return []
        return [queue for queue in self.queues if queue not in self.consumes]


class QueueView(View):
    """One queue with its messages, steps and workers."""

    queue: str
    #: Messages at the broker: hints to ready steps; some may be duplicate or stale.
    depth: int = 0
    #: Ready steps that are not claimed, as far as they were counted.
    ready: int = 0
    running: int = 0
    oldest_ready_at: str | None = None
    oldest_ready_s: float | None = None
    #: Workers that consume it, and how many attempts they can run at once.
    consumers: int = 0
    slots: int = 0


class Overdue(View):
    """Entries that a sweep should have handled by now."""

    count: int = 0
    oldest_s: float | None = None
    #: All entries, including those that are not yet due.
    entries: int = 0


class FleetView(View):
    """An overview of the fleet: sessions, queues, workers and overdue work."""

    at: str
    sessions: dict[str, int]
    queues: list[QueueView]
    workers: list[WorkerView]
    #: Attempts with an expired lease, and parked steps that are due.
    leases: Overdue
    #: Ready steps whose hint must be published again.
    ready: Overdue
    #: Sessions past their retention that are kept because their export cannot be written.
    exports_owed: int = 0
    #: The error of one of these exports.
    export_trouble: str | None = None
    #: Troubles that keep Redis or workers from working, with the fix.
    troubles: list[str] = []


class Limit(View):
    """A limit on how many attempts with a key run at once, and start per minute."""

    key: str
    concurrency: int | None = Field(default=None, ge=1, le=100_000)
    per_minute: float | None = Field(default=None, gt=0, le=100_000)


class StoreView(View):
    """Which store Redis holds, and which one the API works with."""

    #: The id of the store in Redis; null if Redis is empty.
    id: str | None = None
    #: The id that the API remembers.
    remembered: str | None = None
    #: If it is not `known`, requests are refused until an operator accepts the store.
    state: str = "known"
    #: What happened and what to do, if it is not `known`.
    text: str = ""
    #: The file with the remembered id; null if the API does not store it.
    file: str | None = None
    #: Settings of the Redis by which it may lose data.
    warnings: list[str] = []
