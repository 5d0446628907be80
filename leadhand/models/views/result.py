"""Views of how a session ended: the ledger of its iterations, its result, its export."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from leadhand.models.verdicts import Counts, Reason
from leadhand.models.views.explain import InboxMessage
from leadhand.models.views.plan import OwnFolderView, PlanView
from leadhand.models.views.session import SessionView
from leadhand.models.views.shared import ValueView
from leadhand.models.views.step import DiffView, Event, StepView, TranscriptEntry
from leadhand.models.views.view import View


class ChangedFiles(View):
    """The files that differ from when a loop's run began."""

    #: The first of them.
    files: list[str] = []
    count: int


class ChangedByCheckers(View):
    """The files that changed while the checkers of an iteration ran."""

    #: The first of them.
    files: list[str] = []
    count: int
    #: Whether the doer's work was put back: only in a worktree or copy of the session's own.
    put_back: bool
    #: What they changed of what git has of the session's worktree, such as HEAD and its branch; it
    #: was put back.
    git: list[str] = []


class LedgerEntry(View):
    """One iteration of a loop."""

    #: The iteration's address, `outer~1[2]/inner~1[1]`; absent in old entries.
    address: str | None = None
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
    #: The verdict of the checks if files changed while they ran: it is stale, and does not count.
    stale: str | None = None
    #: Whether the doer was not started, since the verdict of the iteration before was stale.
    recheck: bool = False
    #: `user_skip` if people skipped all checks, so that their word alone accepts; see the reason.
    decided_by: str | None = None
    #: The digest of the folder that was judged, and what the loop's doers had changed until then.
    #: None if the folder was not compared; `no_diff` says why, with the words of `NoDiffs`.
    digest: str | None = None
    changed: ChangedFiles | None = None
    no_diff: str | None = None
    #: None if nothing has changed, or if the folder was not compared, for which there is a reason.
    changed_by_checkers: ChangedByCheckers | None = None
    not_compared: str | None = None
    #: By-products and large files, which are not compared. The first ones.
    left_out: list[str] = []
    #: Files that the loop's doers have changed and the judgement depends on: tests, and files that
    #: configure a checker's program. The first ones of each.
    tests_changed: list[str] = []
    checker_changed: list[str] = []
    started_ms: int | None = None
    ended_ms: int | None = None
    #: For all attempts of the iteration; cost is null if no agent reported one.
    cost_usd: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0


class CheckEvidence(View):
    """What one checker of an accepted iteration said."""

    name: str
    #: The loop, where there are several.
    loop: str
    verdict: str | None = None
    #: The tests that it ran; null if they are not known.
    counts: Counts | None = None
    #: The digest of the folder that it judged; null without one.
    digest: str | None = None
    #: How it ended before the work: red, green or unknown; null if it did not run then.
    baseline: str | None = None
    #: `isolated`: by itself, on the work alone; `clean`: in a folder that has nothing but the work
    #: and what was prepared; null: in the working folder, beside other checkers.
    ran: str | None = None


class Evidence(View):
    """On what the acceptance of a session's work is based."""

    #: What was changed; null if that is not known, for which `not_compared` has the reason.
    files: ChangedFiles | None = None
    #: The checkers of the last iteration of each loop.
    checks: list[CheckEvidence] = []
    #: The changed files that are tests, and those that configure what runs them.
    tests_changed: list[str] = []
    checker_changed: list[str] = []
    #: How checks ended before the work, by name: red, green or unknown; those that ran then. A name
    #: that several loops have is `LOOP: NAME`, here and in `flaky`.
    baseline: dict[str, str] = {}
    #: The checks that abstained, since their runs on the same work differed.
    flaky: list[str] = []
    #: What changed while checks ran whose verdict does not count for that; they ran again. Null
    #: where nothing did.
    stale: ChangedFiles | None = None
    #: Why the folder was not compared; null if it was.
    not_compared: str | None = None
    #: By-products and files above 50 MB, which are neither work nor compared. The first ones.
    left_out: list[str] = []
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    #: What a person should know of it, in sentences.
    notes: list[str] = []


class BestIteration(View):
    """The iteration with the most accepting checkers, if none was accepted."""

    run: int
    iteration: int
    #: How many of its checkers accepted, and how many there were.
    accepted: int
    checks: int
    work: str = ""


class Missing(View):
    """A checker that did not accept the best iteration."""

    name: str
    #: None if all of its attempts were lost.
    verdict: str | None = None
    feedback: str = ""


class PhaseView(View):
    """One phase of a workflow, after it ran."""

    name: str
    passed: bool
    verdict: str
    #: The iterations of this session.
    iterations: int
    #: Of a fork: how many of the first entries of its history are copies of the other session's.
    copied_iterations: int = 0
    history: list[LedgerEntry] = []
    result_text: str = ""
    exit_reason: str = ""
    reason: Reason | None = None
    runs: int = 1
    best_iteration: BestIteration | None = None
    missing: list[Missing] = []


class SpawnedSession(View):
    """The session that carried out a task of a plan."""

    #: The task's id.
    id: str
    session: str
    #: Which run of the task it was.
    run: int = 1


class SpawnedWorktree(View):
    """The worktree of a plan's task, or its copy of the folder."""

    #: The task's id.
    id: str
    folder: str
    branch: str | None = None
    base: str | None = None
    #: The commit with which its work was merged; null without a merge.
    merged: str | None = None


class FailedTask(View):
    """A task of a plan that failed, and why."""

    id: str
    reason: str
    session: str | None = None


class Spawned(View):
    """What a plan started for its tasks. That some failed is normal."""

    worktrees: list[SpawnedWorktree] = []
    sessions: list[SpawnedSession] = []
    failed: list[FailedTask] = []


class ResultView(View):
    """The result of a session."""

    session_id: str
    kind: str
    status: str
    verdict: Literal["accept", "terminate", "max_iterations", "exit"] | None
    #: The iterations of this session, as its counters have them.
    iterations: int
    #: Of a fork: how many of the first entries of its history are copies of the other session's.
    copied_iterations: int = 0
    history: list[LedgerEntry] = []
    result_text: str = ""
    exit_reason: str = ""
    reason: Reason | None = None
    warnings: list[str] = []
    #: Of a graph: what each step returned, by its name; `{"error": text}` for one that failed.
    #: Steps that were skipped or did not run are left out.
    results: dict[str, JsonValue] = {}
    #: Of a graph: the names of the steps that failed.
    failed: list[str] = []
    #: Of a plan whose tasks have ended.
    spawned: Spawned | None = None
    phases: list[PhaseView] = []
    #: If the last loop was not accepted: its best iteration, and the other checkers.
    best_iteration: BestIteration | None = None
    missing: list[Missing] = []
    #: The folder that it had to itself, if it was started with `worktree`: `apply` brings it home.
    worktree: OwnFolderView | None = None
    #: Of accepted work that was judged: on what that is based.
    evidence: Evidence | None = None
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


class ExportView(View):
    """All data of one session."""

    format: Literal["leadhand.export/1"] = "leadhand.export/1"
    exported_at: str
    session: SessionView
    #: The document as it was submitted, without webhook and environment; absent for older sessions.
    document: dict[str, JsonValue] | None = None
    #: The compiled program that it runs.
    program: dict[str, JsonValue]
    #: Absent until the session has ended.
    result: ResultView | None = None
    steps: list[StepView] = []
    #: The outcome of each step, by address.
    outcomes: dict[str, JsonValue] = {}
    ledger: list[LedgerEntry] = []
    events: list[Event] = []
    #: The transcript, as far as it is stored.
    transcript: list[TranscriptEntry] = []
    #: The doers' diffs, as far as they are stored.
    differences: list[DiffView] = []
    #: The messages of its inbox, as far as they are stored.
    inbox: list[InboxMessage] = []
    #: Of a plan: its tasks with their runs, reports and history, and what was proposed.
    plan: PlanView | None = None
    #: Of the root of a tree: the values that its sessions share.
    values: list[ValueView] = []
    children: list[str] = []
