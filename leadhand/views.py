"""What the API shows of sessions, as a client reads it; unknown fields are passed over."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue

T = TypeVar("T")

#: Nothing runs in a session that is one of these.
ENDED = frozenset({"stopped", "exited", "aborted", "completed", "failed"})


class View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Page(View, Generic[T]):
    """Some of a list, and the cursor for what follows."""

    items: list[T]
    next: str | None = None


class Reason(View):
    """One link of the chain that leads from an end down to its root cause."""

    code: str
    text: str = ""
    at: str | None = None
    beneath: Reason | None = None


class Counters(View):
    steps: int = 0
    iterations: int = 0
    attempts_failed: int = 0
    attempts_lost: int = 0
    phase_retries: int = 0
    #: Runs of outermost loops that ended without acceptance.
    stops: int = 0
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


class BudgetLine(View):
    """A limit of a session, and what is used of it."""

    used: float
    limit: float


class NodeProgress(View):
    node: str
    label: str
    state: str
    iteration: int = 0
    max_iterations: int = 0
    verdict: str | None = None
    run: int = 1
    attempts_failed: int = 0
    attempts_lost: int = 0
    #: Runs of it that ended without acceptance.
    stops: int = 0


class RunningStep(View):
    address: str
    action: str
    label: str
    since: str | None = None
    attempt: int = 0
    worker: str | None = None


class Progress(View):
    nodes: list[NodeProgress] = []
    running: list[RunningStep] = []


class SessionView(View):
    """One session."""

    id: str
    kind: str
    name: str
    label: str | None = None
    status: str
    reason: Reason | None = None
    parent: str | None = None
    root: str
    place: str = ""
    cwd: str | None = None
    created_at: str
    updated_at: str
    ended_at: str | None = None
    #: The address after which it went on when it was resumed last, where a point was named.
    resumed_after: str | None = None
    counters: Counters = Counters()
    budget: dict[str, BudgetLine] = {}
    progress: Progress = Progress()
    warnings: list[str] = []
    notes: list[str] = []

    @property
    def ended(self) -> bool:
        """Whether nothing runs in it any more; a stopped or failed one can be resumed."""
        return self.status in ENDED


class StepView(View):
    """One step, at its address."""

    address: str
    node: str
    action: str
    label: str
    state: str
    attempt: int = 0
    lost: int = 0
    failed: int = 0
    worker: str | None = None
    queue: str = ""
    started_at: str | None = None
    ended_at: str | None = None
    verdict: str | None = None
    reason: Reason | None = None
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


class LedgerEntry(View):
    """One iteration of a loop: the work, the verdict and what each checker said."""

    loop: str
    run: int
    iteration: int
    verdict: str
    feedback: str = ""
    reason: Reason | None = None
    doer_session: str = ""
    doer: str | None = None
    work: str = ""
    checks: list[dict[str, JsonValue]] = []
    started_ms: int | None = None
    ended_ms: int | None = None
    cost_usd: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0


class TranscriptEntry(View):
    """Something that was said in a session: to an agent, by it, by a person, or noted beside."""

    seq: int
    at: str
    address: str
    label: str
    role: Literal["user", "assistant", "human", "note"]
    text: str
    cut: bool = False
    index: int | None = None
    total: int | None = None
    depth: int = 0
    iteration: int | None = None
    agent: str | None = None
    identifier: str | None = None
    attempt: int = 0
    verdict: str | None = None
    cost_usd: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0


class BestIteration(View):
    """Of those that were not accepted the one that came nearest."""

    run: int
    iteration: int
    accepted: int
    checks: int
    work: str = ""


class Missing(View):
    """A checker that stood between the best iteration and acceptance."""

    name: str
    verdict: str | None = None
    feedback: str = ""


class PhaseView(View):
    """One phase of a workflow, after it ran."""

    name: str
    passed: bool
    verdict: str
    iterations: int
    history: list[LedgerEntry] = []
    result_text: str = ""
    exit_reason: str = ""
    reason: Reason | None = None
    runs: int = 1
    best_iteration: BestIteration | None = None
    missing: list[Missing] = []


class ResultView(View):
    """How a session ended, and with what."""

    session_id: str
    kind: str
    status: str
    verdict: Literal["accept", "terminate", "max_iterations", "exit"] | None
    iterations: int
    history: list[LedgerEntry] = []
    result_text: str = ""
    exit_reason: str = ""
    reason: Reason | None = None
    warnings: list[str] = []
    phases: list[PhaseView] = []
    best_iteration: BestIteration | None = None
    missing: list[Missing] = []
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


class Event(View):
    """One line of a session's record of what happened."""

    id: str
    type: str
    at_ms: int
    address: str | None = None
    fields: dict[str, JsonValue] = {}

    @property
    def position(self) -> tuple[int, int]:
        """Where it stands in the record."""
        return position(self.id)


class Running(View):
    """An attempt that a worker makes now."""

    session: str
    address: str
    action: str
    label: str
    queue: str
    attempt: int
    process: str
    since: str | None = None


class AgentHere(View):
    """An agent as one worker host has it."""

    name: str
    kind: Literal["command", "model", "callable"]
    #: What it is, in a word for people.
    command: str
    #: Whether it can be told which model to use.
    takes_model: bool = False
    #: Whether it can go on with a conversation.
    remembers: bool = False
    #: Whether it finds a conversation only in the folder where that began.
    keeps_to_folder: bool = False
    #: Why it cannot be used there, and what to do about it.
    why_not: str | None = None


class AgentView(View):
    """An agent, and the places where it can be used."""

    name: str
    kind: Literal["command", "model", "callable"]
    command: str
    takes_model: bool = False
    remembers: bool = False
    keeps_to_folder: bool = False
    #: Whether it works where no doer is named.
    default: bool = False
    usable_at: list[str] = []
    #: By place: why it cannot be used there, and what to do about it.
    why_not: dict[str, str] = {}


class ToolParameter(View):
    """One argument of a tool."""

    name: str
    #: What its function wants there, as it is written.
    annotation: str | None = None
    required: bool = True


class ToolHere(View):
    """A tool as one worker host has it."""

    #: `module:function`, or a name of our own; of a file that cannot be read, the module.
    name: str
    #: What its function says of itself.
    about: str = ""
    parameters: list[ToolParameter] = []
    #: Whether it takes arguments of any name.
    takes_any: bool = False
    #: Why it cannot be used there, and what to do about it.
    why_not: str | None = None


class ToolView(View):
    """A tool, and the places where it can be used."""

    name: str
    about: str = ""
    parameters: list[ToolParameter] = []
    takes_any: bool = False
    usable_at: list[str] = []
    #: By place: why it cannot be used there, and what to do about it.
    why_not: dict[str, str] = {}


class FlowInput(View):
    """What a run of a flow can be given; it must be where there is no default."""

    name: str
    default: str | None = None


class FlowView(View):
    """A flow of the catalog, as its file is now."""

    name: str
    description: str = ""
    disabled: bool = False
    #: Why: the file, the path in it, the way out.
    error: str | None = None
    inputs: list[FlowInput] = []
    #: Of what it says, and of all that it needs of other files.
    hash: str = ""
    #: What the file says; only where one flow is asked for.
    definition: dict[str, JsonValue] | None = None


class FlowFaultView(View):
    """What is wrong with a flow, and where in it."""

    path: str
    message: str


class FlowCheckView(View):
    """Whether a flow could be run here now."""

    valid: bool
    faults: list[FlowFaultView] = []


class WorkerView(View):
    """A worker host that told of itself lately."""

    name: str
    place: str
    queues: list[str] = []
    agents: list[str] = []
    #: What each of them is, and whether it can be used.
    agents_here: list[AgentHere] = []
    tools_here: list[ToolHere] = []
    default_agent: str | None = None
    roots: list[str] = []
    concurrency: int = 0
    #: The newest form of programs that it can carry out.
    schema_version: int = 1
    pid: int = 0
    host: str = ""
    path: str | None = None
    seen_at: str | None = None
    running: list[Running] = []


class QueueView(View):
    """One queue: what stands in it, and who takes from it."""

    queue: str
    depth: int = 0
    ready: int = 0
    running: int = 0
    oldest_ready_at: str | None = None
    oldest_ready_s: float | None = None
    consumers: int = 0
    slots: int = 0


class Overdue(View):
    """What is past its time: the sweep should have looked at it by now."""

    count: int = 0
    oldest_s: float | None = None
    entries: int = 0


class FleetView(View):
    """The whole fleet at one glance."""

    at: str
    sessions: dict[str, int]
    queues: list[QueueView]
    workers: list[WorkerView]
    leases: Overdue
    ready: Overdue
    exports_owed: int = 0
    export_trouble: str | None = None


class DiffView(View):
    """What one doer changed in its folder."""

    address: str
    loop: str
    iteration: int
    #: Digests of the folder before and after.
    before: str
    after: str
    #: As git shows it; cut where it is long.
    patch: str


class ExportView(View):
    """Everything that is kept of one session."""

    format: Literal["leadhand.export/1"] = "leadhand.export/1"
    exported_at: str
    session: SessionView
    program: dict[str, JsonValue]
    result: ResultView | None = None
    steps: list[StepView] = []
    outcomes: dict[str, JsonValue] = {}
    ledger: list[LedgerEntry] = []
    events: list[Event] = []
    transcript: list[TranscriptEntry] = []
    differences: list[DiffView] = []
    children: list[str] = []


class BulkRefusal(View):
    """A session that a bulk operation passed over, and why."""

    session: str
    status: str
    why: str


class BulkView(View):
    """What a bulk operation did, or would have done."""

    verb: Literal["stop", "resume", "abort", "delete"]
    dry_run: bool
    matched: int
    done: int
    refused: int
    first: list[str] = []
    refusals: list[BulkRefusal] = []
    next: str | None = None


class Cause(View):
    """One link of the chain from an end down to its root cause."""

    code: str
    text: str = ""
    at: str | None = None


class Wait(View):
    """Why one step does not go on, or who works on it."""

    session: str = ""
    address: str = ""
    label: str = ""
    state: str = ""
    #: running, lost, queue, window, no_worker, place_gone, lock, rate, retry, timer, human, child,
    #: schema, or the session's status.
    why: str
    text: str
    since: str | None = None
    until: str | None = None
    queue: str | None = None
    lock: str | None = None
    #: Sessions that hold the lock.
    holders: list[str] = []
    question: str | None = None
    child: str | None = None
    #: What the child waits for.
    beneath: list[Wait] = []
    #: Commands that can be run.
    next: list[str] = []


class Met(View):
    """An attempt that ran when its session was told to end."""

    session: str
    address: str
    worker: str
    #: released (handed back), settled, cancelled, expired (its worker was lost), retried, parked,
    #: or running still.
    became: str
    at: str | None = None


class ReceiptView(View):
    """What the last stop, exit or abort of a session met, in its whole tree."""

    session: str
    status: str
    #: None where it was never told to end.
    control: str | None = None
    asked_at: str | None = None
    #: Whether nothing runs any more.
    done: bool = False
    items: list[Met] = []


class ExplainView(View):
    """Why a session waits or why it ended, and what to do next."""

    session: str
    status: str
    text: str
    waits: list[Wait] = []
    #: Why it ended, the root cause last.
    causes: list[Cause] = []
    #: Commands that can be run.
    next: list[str] = []


class Finding(View):
    """Something in Redis or at the broker that does not agree with the rest."""

    kind: str
    session: str | None = None
    what: str
    mended: bool = False
    #: What can be done about it, where it was not mended.
    way: str | None = None


class FsckView(View):
    """What one call of an audit looked at, and what it found."""

    items: list[Finding]
    #: How much was found, and how much of it is left; `items` holds the first thousand.
    found: int = 0
    left: int = 0
    keys: int = 0
    sessions: int = 0
    #: Where the next call goes on; none where that was all.
    next: str | None = None


def position(event_id: str) -> tuple[int, int]:
    """An event id as the two numbers that order it.

    >>> position("1700000000000-7") < position("1700000000000-12")
    True
    """
    first, _, second = event_id.partition("-")
    return int(first), int(second)
