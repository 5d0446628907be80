"""Views of sessions: one, lists, trees, bulk verbs and batches; and of claims of local steps."""

from __future__ import annotations

from typing import Any, Literal

from leadhand.models.problems import Problem
from leadhand.models.verdicts import Reason
from leadhand.models.views.plan import OwnFolderView
from leadhand.models.views.view import View

#: The statuses of a session that has ended.
ENDED = frozenset({"stopped", "exited", "aborted", "completed", "failed"})
#: Maximum number of documents of one request.
MOST = 100


class RoleView(View):
    """The phase of a session that has a role in a plan, or was started by another session."""

    #: tl (the team lead: the session of a plan), dev (carries out a task), worker (another child).
    role: Literal["tl", "dev", "worker"]
    phase: str
    #: Of a waiting or merging team lead: the tasks whose children it waits for.
    children: list[str] = []
    #: Of a dev: the rounds of review by its checkers.
    round: int = 0
    #: Whether it may end now, or should not, or must not, and why.
    may_end: Literal["clean", "nudge", "block"] = "clean"
    text: str = ""


class Counters(View):
    """Counters of a session; never reset."""

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
    """A limit of a session, and how much of it is used."""

    used: float
    limit: float


class NodeProgress(View):
    """The progress of one node of the program's outermost block."""

    node: str
    label: str
    state: str
    iteration: int = 0
    max_iterations: int = 0
    verdict: str | None = None
    #: The run of the node: 1, and one more for each retry.
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
    """How far a session is. The share is of its work in weights of steps.

    An agent or child session counts 30, a tool or check 5, any other step 1.
    """

    nodes: list[NodeProgress] = []
    running: list[RunningStep] = []
    #: The share of the work that is done, from 0 to 1; null for a program without work.
    share: float | None = None
    #: Seconds of work so far, without those in which it was stopped or only waited for a person.
    elapsed_s: float | None = None
    #: The estimated seconds of the rest: what the work so far took for its share; null while
    #: nothing is done, and for a session that does not run.
    left_s: float | None = None
    #: Whether the session may end sooner: loops count with all of their iterations.
    at_most: bool = False


class MadeFrom(View):
    """The session that a fork or a rerun was made from."""

    session: str
    verb: Literal["fork", "rerun"]
    #: Of a fork: the address after which it continues; null: where that session had come to.
    after: str | None = None
    #: What the copied steps had cost; the fork's own cost does not contain it.
    cost_usd: float = 0.0


class SessionView(View):
    """One session."""

    id: str
    kind: str
    name: str
    label: str | None = None
    #: The title that a person gave it.
    renamed: str | None = None
    #: The note that a person made on it.
    note: str | None = None
    #: Whether lists hide it.
    archived: bool = False
    status: str
    reason: Reason | None = None
    parent: str | None = None
    root: str
    #: How many sessions are above it: 0 for one that no other session started.
    depth: int = 0
    #: The session that started it and has ended, after which it continues by itself.
    detached_from: str | None = None
    made_from: MadeFrom | None = None
    place: str = ""
    cwd: str | None = None
    #: The folder that it was submitted from, where lists find it; that of its root for a child.
    folder: str | None = None
    #: The folder that it has to itself, if it was started with `worktree`.
    worktree: OwnFolderView | None = None
    created_at: str
    updated_at: str
    ended_at: str | None = None
    #: The address after which the last resume continued, if it named one.
    resumed_after: str | None = None
    counters: Counters = Counters()
    #: By name: iterations, steps, wall_s, cost_usd, tokens, stage_stops, stops.
    budget: dict[str, BudgetLine] = {}
    progress: Progress = Progress()
    #: Its role and phase, where one session is read; None without a role.
    phase: RoleView | None = None
    warnings: list[str] = []
    #: The first line of a loop's task.
    task: str | None = None
    #: A loop's doer, such as `agent claude`.
    doer: str | None = None
    #: The names of a loop's checkers.
    checkers: list[str] = []
    #: Notes on why it waits, with the fix.
    notes: list[str] = []
    #: Why a person should look at it: unread failures of children, messages that no turn will read.
    needs_attention: list[str] = []
    #: Troubles that keep Redis or its workers from working, such as a full disk.
    troubles: list[str] = []
    #: Of a graph with local steps, in the responses to its submit and to a resume: the token with
    #: which its own worker claims them.
    work_token: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the session has ended; a stopped or failed one can be resumed."""
        return self.status in ENDED

    @property
    def title(self) -> str:
        """Return the title for lists: the given one, the label, the loop's task or the name."""
        return self.renamed or self.label or self.task or self.name


class BulkRefusal(View):
    """A session that a bulk operation skipped, and why."""

    session: str
    status: str
    why: str


class BulkView(View):
    """The result of a bulk operation or of its dry run."""

    verb: Literal["stop", "resume", "abort", "archive", "restore", "delete"]
    dry_run: bool
    #: How many of the sessions that this call checked match the filter.
    matched: int
    #: How many of them were changed; 0 in a dry run.
    done: int
    refused: int
    #: The first ids that match.
    first: list[str] = []
    #: The first sessions that were skipped.
    refusals: list[BulkRefusal] = []
    #: Of a dry run: a token for the first 1,000 of them, so that a call applies to these alone.
    token: str | None = None
    #: Of a call with a token: the sessions that changed after the dry run, and were left out.
    changed: list[str] = []
    #: The cursor of the next call, if there are more sessions.
    next: str | None = None


class TreeNode(View):
    """One session of a tree."""

    id: str
    parent: str | None = None
    #: The address of the parent's step that started it.
    started_by: str | None = None
    #: The session that started it and has ended, after which it continues by itself.
    detached_from: str | None = None
    #: How many sessions are above it.
    depth: int = 0
    kind: str
    title: str
    status: str
    #: Its role and phase; None without a role.
    phase: RoleView | None = None
    reason: Reason | None = None
    created_at: str
    #: Seconds from its creation to now, or to its end.
    elapsed_s: float
    #: Its cost, that of its children included.
    cost_usd: float = 0.0


class TreeCause(View):
    """One link of the chain of reasons from the root cause to the root of a tree."""

    session: str
    code: str
    text: str = ""
    #: The address of the step or loop that it is about.
    at: str | None = None


class TreeView(View):
    """A session and all sessions below it."""

    session: str
    #: The root of the tree that the session belongs to.
    root: str
    #: Each session comes before its children, and the oldest child first.
    items: list[TreeNode]
    #: Why the session ended, the root cause first, then the ends of the sessions above it.
    causes: list[TreeCause] = []
    #: Sessions that are left out because one of their keys in Redis has a wrong type: `leadhand
    #: fsck` names it.
    damaged: list[str] = []
    #: What is left out, if the tree is larger than the limit.
    note: str | None = None


class BatchItemView(View):
    """What became of one item: a session, or a problem."""

    #: The id of the session.
    session: str | None = None
    #: Whether this request created it; an earlier one with the same key may have.
    created: bool = False
    #: Why there is no session.
    problem: Problem | None = None


class BatchView(View):
    """What became of each item, in the order of the request."""

    items: list[BatchItemView]


class WorkGrant(View):
    """A claimed step: what to call, and what the attempt is named by in beats and its settle."""

    address: str
    #: The step's name.
    step: str
    #: The tool's name, without `local:`.
    tool: str
    arguments: dict[str, Any] = {}
    fence: int
    nonce: str
    #: From 1.
    attempt: int
    timeout_s: float
    #: The lease: without a beat for so many seconds the step is given to another worker.
    lease_s: float
    #: The attempts of a step have one key, by which the tool can recognise a repetition.
    key: str


class WorkView(View):
    """What a worker of a session's local steps gets: a step, or the session's status."""

    #: Of the session: there is work to come only while it is `active`.
    status: str
    #: Null if no step is ready.
    grant: WorkGrant | None = None
    #: Seconds until the next retry is due, without a grant; null if no retry waits.
    next_s: float | None = None


class BeatView(View):
    """The reply to a heartbeat."""

    #: ok; stop or cancel: end the tool, its outcome does not count; lost: another attempt has it.
    order: str
    #: Seconds until the lease ends; null if it was lost.
    lease_s: float | None = None


class SettledView(View):
    """What became of an outcome."""

    #: settled; again: it failed and is tried once more; repeated: it was recorded before;
    #: superseded: the attempt does not own the step, and nothing was recorded. Of an attempt that
    #: was released: released, or cancelled if the step is not to run again.
    result: str
    #: The session's status after it.
    status: str
