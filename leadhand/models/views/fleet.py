"""Views of the fleet, its limits, statistics, audit and store, and of API tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from leadhand.models.views.view import View

Count = Annotated[int, Field(ge=0, le=10**15, strict=True)]


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


class SessionCount(View):
    """Ends of sessions of one kind, with one status and reason."""

    kind: str
    #: The flow, workflow or graph; empty for other kinds.
    name: str = ""
    status: str
    #: The code of the reason; empty if it has none.
    reason: str = ""
    count: int
    #: From submit to end, of all together.
    seconds: float


class LoopCount(View):
    """Ends of loops of one agent, with one verdict in one iteration."""

    #: The doer's agent; `command` or `callable` for other doers, `default` for an unnamed agent.
    agent: str
    verdict: str
    #: 100 also counts those with more.
    iterations: int
    count: int
    seconds: float


class CheckCount(View):
    """Outcomes of one checker with one verdict."""

    checker: str
    #: accept, retry, terminate; flaky, if runs on the same work failed, passed and failed; for a
    #: check without a verdict, how it ended, such as failed.
    verdict: str
    count: int
    #: Of the last attempts of all together.
    seconds: float


class UsageCount(View):
    """What the attempts of one agent used in sessions of one kind."""

    kind: str
    agent: str
    cost_usd: float = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Acceptance(View):
    """How many loops of an agent were accepted in an iteration, of those that reached it."""

    agent: str
    iteration: int
    reached: int
    accepted: int

    @property
    def rate(self) -> float:
        """Return the share of accepted loops, of those that reached the iteration (0 to 1)."""
        return self.accepted / self.reached


class DayCount(View):
    """What ended on a day, and what it cost."""

    #: Such as 2026-11-01.
    day: str
    #: Ended sessions by status.
    ended: dict[str, int] = {}
    cost_usd: float = 0


class StatisticsView(View):
    """Statistics of some days, by UTC.

    A failed session that is resumed and ends again counts twice. A child session counts in its own
    row, and so does what it used.
    """

    #: Days such as 2026-11-01.
    first: str
    last: str
    #: All days in which something was counted, in order.
    days: list[DayCount] = []
    sessions: list[SessionCount] = []
    loops: list[LoopCount] = []
    #: Derived from `loops`, by agent and iteration.
    acceptance: list[Acceptance] = []
    checks: list[CheckCount] = []
    usage: list[UsageCount] = []
    #: The cost of all attempts per completed session; null without one.
    cost_per_completed_usd: float | None = None


class Finding(View):
    """A record in Redis or at the broker that does not agree with the others."""

    kind: str
    session: str | None = None
    what: str
    mended: bool = False
    #: The command or action that fixes it, if it was not repaired.
    way: str | None = None


class FsckView(View):
    """The findings of one call of an audit, and how much it checked."""

    items: list[Finding]
    #: The number of findings, and of those that are left; `items` has the first thousand.
    found: int = 0
    left: int = 0
    keys: int = 0
    sessions: int = 0
    #: How many folders and records of folders were compared; only the command asks for that.
    folders: int = 0
    #: The cursor of the next call; null if the audit is complete.
    next: str | None = None


class FolderAuditStarted(View):
    """A session that audits the folders of tasks and sessions at one place."""

    place: str
    #: Its result text is a FolderFindings as JSON.
    session: str


class FolderAuditView(View):
    """The sessions that audit the folders, one per place with a worker."""

    items: list[FolderAuditStarted] = []


class FolderFindings(View):
    """What an audit of the folders at a place found."""

    #: The first thousand.
    items: list[Finding] = []
    found: int = 0
    left: int = 0
    #: How many folders and records were compared.
    folders: int = 0


class Quotas(View):
    """The limits of a token's sessions; None means no limit."""

    #: Sessions that have not ended.
    max_sessions: Count | None = None
    #: Steps per day (UTC); running sessions continue, but no new one can start.
    steps_per_day: Count | None = None
    #: Bytes of submitted documents per day (UTC).
    bytes_per_day: Count | None = None


class Spent(View):
    """The usage of a token: live sessions, and the steps and bytes of this day (UTC)."""

    sessions: int = 0
    steps: int = 0
    bytes: int = 0


class TokenWebhook(View):
    """The webhook of a token's sessions, without its secret."""

    host: str
    events: list[str]
    #: Whether a secret signs the requests.
    signed: bool


class TokenView(View):
    """A token without its secret text."""

    id: str
    name: str
    scopes: list[str]
    quotas: Quotas = Quotas()
    spent: Spent = Spent()
    webhook: TokenWebhook | None = None
    created_at: str
    expires_at: str | None = None
    expired: bool = False
    #: To the minute; None if it was never used.
    last_used_at: str | None = None


class NewToken(TokenView):
    """A new token; only this response has its text."""

    token: str
