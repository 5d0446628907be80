"""The table of API operations, from which the OpenAPI document is generated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import BaseModel, JsonValue

from api import requests
from api.artifacts.routes import BYTES, PartBody, PartQuery
from api.fleet.routes import FsckBody
from api.fleet.statistics import StatisticsQuery
from api.guards import GuardsQuery, ResetBody
from api.health import Health
from api.limits import LimitBody
from api.plans import Decision
from api.responses import JSON_LINES
from api.shared import Acquire, DeleteValueQuery, ReleaseQuery, Renew, SetValue, ValuesQuery
from api.stacks import bodies as stacks
from api.store import AcceptBody
from api.tokens import NewTokenBody
from api.worktrees import (
    ApplyBody,
    ApplyPlanBody,
    CleanBody,
    DiffBody,
    FolderAuditBody,
    FoldersQuery,
)
from leadhand.flows.documents import AnyDocument, FlowRun
from leadhand.models.guards import AgentEvent, StopReport
from leadhand.models.local_work import BeatWork, ClaimWork, SettleWork
from leadhand.models.plans import PlanChange, PlanEdit, TaskReport
from leadhand.models.stacks import OutputsView, StackChange, StackHead, StackView, WorkflowSession
from leadhand.models.views import (
    AgentView,
    ApplyingView,
    ArtifactView,
    BulkView,
    CleaningView,
    DiffsPage,
    Event,
    ExplainView,
    ExportView,
    FleetView,
    FlowCheckView,
    FlowView,
    FolderAuditView,
    FsckView,
    GuardReset,
    GuardsView,
    HomeView,
    InboxMessage,
    LedgerEntry,
    Limit,
    LockGrant,
    LockRelease,
    LockView,
    MergeView,
    NewToken,
    OutputView,
    Page,
    PlanView,
    QuestionView,
    QueueView,
    ReceiptView,
    ReportView,
    ResultView,
    SessionView,
    StatisticsView,
    StepView,
    StopView,
    StoreView,
    TaskView,
    TokenView,
    ToolView,
    TranscriptEntry,
    TreeView,
    UploadView,
    ValueHead,
    ValueView,
    WorkerView,
    WorktreeView,
)
from leadhand.models.views.work import BeatView, SettledView, WorkView

JSON = "application/json"


class ApiResponse(NamedTuple):
    """A response: its status, description, body by media type, and headers."""

    status: int
    what: str
    body: Mapping[str, object] = {}
    headers: tuple[str, ...] = ()


class Operation(NamedTuple):
    """An operation of the API, by endpoint."""

    endpoint: str
    method: str
    summary: str
    responses: tuple[ApiResponse, ...]
    query: type[BaseModel] | None = requests.NoQuery
    #: The type of the request body; None if it is not read.
    body: object | None = None
    body_required: bool = False
    headers: tuple[str, ...] = ()
    #: Problem statuses in addition to those implied by its parameters and body.
    refuses: tuple[int, ...] = ()
    #: The path parameter of other operations that takes the `id` of its response.
    makes: str | None = None


def as_json(
    model: object, what: str, status: int = 200, *, headers: tuple[str, ...] = ()
) -> ApiResponse:
    """A JSON response."""
    return ApiResponse(status, what, {JSON: model}, headers)


_GONE = ApiResponse(204, "Done.")
_SESSION = as_json(SessionView, "The session as it is now.", 202, headers=("ETag",))


def _control(
    verb: str, summary: str, body: type[BaseModel], *, body_required: bool = False
) -> Operation:
    """A control operation of a session."""
    room = (429,) if verb in ("resume", "retry", "skip") else ()
    return Operation(
        f"sessions.{verb}", "POST", summary, (_SESSION,), body=body, body_required=body_required,
        headers=("If-Match",), refuses=(409, 412, *room),
    )  # fmt: skip


_CHANGE = as_json(StackChange, "The workflow session and the stack, as they are now.")


def _on_stack(
    verb: str, summary: str, body: type[BaseModel], *, body_required: bool = True
) -> Operation:
    """A change of a workflow session on a stack."""
    return Operation(
        f"stacks.{verb}", "POST", summary, (_CHANGE,), body=body, body_required=body_required,
        headers=("Idempotency-Key",), refuses=(409, 422),
    )  # fmt: skip


_STACKS: tuple[Operation, ...] = (
    Operation("stacks.listed", "GET", "List the stacks, the one that was changed last first",
              (as_json(Page[StackHead], "A page of stacks."),), query=requests.PageQuery),
    Operation("stacks.one", "GET", "Show the workflow sessions on a stack",
              (as_json(StackView, "The stack as it is now; an unused one is empty."),),
              refuses=(422,)),
    Operation("stacks.workflows", "GET", "List the workflow sessions of a stack, ended ones too",
              (as_json(Page[WorkflowSession], "A page of them, the newest first."),),
              query=stacks.WorkflowsQuery),
    Operation("stacks.workflow", "GET", "Show a workflow session, or the `active` one",
              (as_json(WorkflowSession, "The workflow session as it is now."),),
              refuses=(409, 422)),
    Operation("stacks.outputs", "GET", "Merge the outputs of a workflow session's completed steps",
              (as_json(OutputsView, "Of equal names, the output of the later step."),),
              refuses=(409, 422)),
    Operation("stacks.start", "POST", "Start a workflow session on top of a stack",
              (as_json(StackChange, "The workflow session and the stack.", 201),),
              body=stacks.StartWorkflow, body_required=True, headers=("Idempotency-Key",),
              refuses=(409,)),
    _on_stack("step_start", "Record the start of a step", stacks.OneStep),
    _on_stack("step_complete", "Record the end of a step", stacks.CompleteStep),
    _on_stack("quality_attempt", "Count a quality attempt of a step", stacks.OneStep),
    _on_stack("advance", "Move to another step, forwards or back", stacks.Advance),
    _on_stack("complete", "End a workflow session as completed", requests.NoBody,
              body_required=False),
    _on_stack("abort", "End a workflow session as aborted", stacks.AbortWorkflow,
              body_required=False),
    _on_stack("load", "Put a workflow session back on top of its stack", stacks.LoadWorkflow,
              body_required=False),
    Operation("stacks.delete", "DELETE", "Delete a workflow session, active or not", (_CHANGE,),
              headers=("Idempotency-Key",), refuses=(422,)),
)  # fmt: skip

_WORK: tuple[Operation, ...] = (
    Operation("work.claim", "POST", "Claim the next local step of a session, and wait for one",
              (as_json(WorkView, "The step, if one is ready, and the session's status."),),
              body=ClaimWork, body_required=True),
    Operation("work.beat", "POST", "Extend the lease of an attempt at a local step",
              (as_json(BeatView, "Whether the attempt may go on."),),
              body=BeatWork, body_required=True),
    Operation("work.settle", "POST", "Record the outcome of an attempt at a local step",
              (as_json(SettledView, "What became of it. A repeated call changes nothing."),),
              body=SettleWork, body_required=True),
)  # fmt: skip

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "sessions.submit", "POST", "Start a session; with a step token, a child session",
        (as_json(SessionView, "The session, new or known by its key.", 202,
               headers=("Location", "ETag")),),
        query=requests.SubmitQuery, body=AnyDocument, body_required=True,
        headers=("Idempotency-Key",), refuses=(409, 429),
        makes="session",
    ),
    Operation(
        "sessions.listed", "GET", "List sessions, newest first",
        (as_json(Page[SessionView], "A page of the matching sessions."),),
        query=requests.SessionsQuery,
    ),
    Operation(
        "sessions.bulk", "POST", "Apply a verb to all sessions that match a filter",
        (as_json(BulkView, "What was done, or would be done (dry run)."),),
        body=requests.Bulk, body_required=True,
    ),
    Operation(
        "sessions.one", "GET", "Show a session",
        (as_json(SessionView, "The session as it is now.", headers=("ETag",)),
         ApiResponse(304, "The session has not changed.", headers=("ETag",))),
        headers=("If-None-Match",),
    ),
    Operation(
        "sessions.delete", "DELETE", "Delete a session",
        (_GONE, as_json(SessionView, "With force: it is aborting, and is deleted at its end.",
                      202, headers=("ETag",))),
        query=requests.DeleteQuery, headers=("If-Match",), refuses=(409, 412),
    ),
    Operation(
        "sessions.result", "GET", "Show the result of an ended session",
        (as_json(ResultView, "The result."),), refuses=(409,),
    ),
    Operation(
        "sessions.steps", "GET", "List a session's steps",
        (as_json(Page[StepView], "A page of steps."),), query=requests.PageQuery,
    ),
    Operation(
        "sessions.ledger", "GET", "List a session's iterations, oldest first",
        (as_json(Page[LedgerEntry], "A page of iterations."),), query=requests.PageQuery,
    ),
    Operation("sessions.diffs", "GET", "Show the diffs of each doer's work",
              (as_json(DiffsPage, "A page of diffs, in order."),), query=requests.DiffsQuery),
    Operation("sessions.output", "GET", "Read the last output of a session's bodies",
              (as_json(Page[OutputView], "By attempt, the one that wrote last first."),),
              query=requests.OutputQuery),
    Operation("sessions.receipt", "GET", "List the attempts that the last control ended",
              (as_json(ReceiptView, "The attempts that ran then, in the whole tree."),)),
    Operation("sessions.explain", "GET", "Explain why a session waits or ended",
              (as_json(ExplainView, "The chain of causes, and suggested commands."),)),
    Operation("sessions.tree", "GET", "List a session and all sessions below it",
              (as_json(TreeView, "The sessions, each before its children, and the causes."),),
              query=requests.TreeQuery),
    Operation(
        "sessions.transcript", "GET", "Read a session's prompts and answers, in order",
        (ApiResponse(200, "A page as JSON, or the whole transcript as Markdown.",
              {JSON: Page[TranscriptEntry], "text/markdown": str}),),
        query=requests.TranscriptQuery,
    ),
    Operation(
        "sessions.export", "GET", "Export all stored data of a session",
        (ApiResponse(200, "All data as one object, or the ledger as JSON Lines.",
              {JSON: ExportView, JSON_LINES: str}, headers=("Content-Disposition",)),),
        query=requests.ExportQuery,
    ),
    Operation(
        "events.of_session", "GET", "Read or follow a session's events",
        (ApiResponse(200, "A page of events, or a stream of them until the session ends.",
              {JSON: Page[Event], "text/event-stream": str}),),
        query=requests.StreamQuery, headers=("Last-Event-ID",),
    ),
    _control("stop", "Stop a session: start no steps, and release running ones", requests.NoBody),
    _control("resume", "Resume a stopped or failed session", requests.Resume),
    _control("retry", "Run a step of a stopped or failed session again, and what depends on it",
             requests.Retry, body_required=True),
    _control("skip", "Skip a step, so that what depends on it goes on without it", requests.Skip,
             body_required=True),
    _control("exit", "Exit a session from the inside", requests.Exit, body_required=True),
    _control("abort", "Abort a session", requests.Abort),
    Operation("sessions.annotate", "PATCH", "Rename or archive a session",
              (as_json(SessionView, "The session, with its title."),),
              body=requests.Annotation, refuses=(409,)),
    Operation("sessions.rehome", "POST", "Move a session to another place",
              (as_json(SessionView, "The session, at its new place.", 202, headers=("ETag",)),),
              body=requests.Rehome, body_required=True, headers=("If-Match",),
              refuses=(409, 412)),
    Operation("sessions.answers", "POST", "Answer a session's question to a person",
              (_SESSION,), body=requests.Answers, body_required=True, refuses=(409,)),
    Operation("inbox.listed", "GET", "List the messages of a session's inbox, oldest first",
              (as_json(Page[InboxMessage], "A page of messages."),), query=requests.InboxQuery),
    Operation("inbox.take", "POST", "Acknowledge the unread messages that no turn has got",
              (as_json(Page[InboxMessage], "The messages, oldest first; empty if none is left."),),
              body=requests.NoBody, headers=("Idempotency-Key",)),
    Operation("inbox.notify_parent", "POST", "Send a message of a session to its parent's inbox",
              (as_json(InboxMessage, "The message, new or known by its key.", 201),),
              body=requests.Notify, body_required=True, headers=("Idempotency-Key",),
              refuses=(409,)),
    Operation("inbox.hint", "POST", "Send a hint to a session's next turn",
              (as_json(InboxMessage, "The message, new or known by its key.", 201),),
              body=requests.Hint, body_required=True, headers=("Idempotency-Key",),
              refuses=(409,)),
    Operation("locks.listed", "GET", "List the named locks of a session's tree",
              (as_json(Page[LockView], "Those that are held or waited for, by name."),)),
    Operation("locks.acquire", "POST", "Take a named lock of a session's tree, or wait for it",
              (as_json(LockGrant, "The lock is held."),
               as_json(LockGrant, "The caller has a place in the line; call again.", 202)),
              body=Acquire, body_required=True, refuses=(409,)),
    Operation("locks.renew", "PUT", "Extend the time of a named lock",
              (as_json(LockGrant, "The lock is held."),),
              body=Renew, body_required=True, refuses=(409,)),
    Operation("locks.release", "DELETE", "Release a named lock, or leave its line",
              (as_json(LockRelease, "Whether it was held until now."),), query=ReleaseQuery),
    Operation("kv.listed", "GET", "List the keys of the values that a session's tree shares",
              (as_json(Page[ValueHead], "A page of keys, by name."),), query=ValuesQuery),
    Operation("kv.one", "GET", "Read a value that a session's tree shares",
              (as_json(ValueView, "The value as it is now."),)),
    Operation("kv.put", "PUT", "Store a value for a session's tree",
              (as_json(ValueHead, "The key, with the new version."),),
              body=SetValue, body_required=True, headers=("Idempotency-Key",),
              refuses=(409, 412)),
    Operation("kv.delete", "DELETE", "Delete a value of a session's tree", (_GONE,),
              query=DeleteValueQuery, headers=("Idempotency-Key",), refuses=(409, 412)),
    Operation("artifacts.listed", "GET", "List a session's artifacts: long results and outputs",
              (as_json(Page[ArtifactView], "A page of artifacts, by step."),),
              query=requests.PageQuery),
    Operation("artifacts.read", "GET", "Read bytes of an artifact that the session refers to",
              (ApiResponse(200, "Its bytes; `Content-Range` says which.", {BYTES: bytes},
                   headers=("Content-Range", "Content-Disposition")),), query=PartQuery),
    Operation("artifacts.put", "PUT", "Upload a part of an artifact, as the attempt's worker",
              (as_json(UploadView, "Whether the artifact is complete."),),
              body=PartBody, body_required=True, refuses=(409, 507)),
    Operation("guards.listed", "GET", "List the Stop guards that have not ended",
              (as_json(GuardsView, "The guards with their counters."),), query=GuardsQuery),
    Operation("guards.stop", "POST", "Report a stop of an agent: may it stop?",
              (as_json(StopView, "Run the gates, or the decision."),),
              body=StopReport, body_required=True, refuses=(429,)),
    Operation("guards.event", "POST", "Record an event of an agent that ends a row of blocks",
              (_GONE,), body=AgentEvent, body_required=True),
    Operation("guards.reset", "POST", "Reset the counters of Stop guards",
              (as_json(GuardReset, "How many were reset."),), body=ResetBody),
    Operation("questions.listed", "GET", "List the open questions to people",
              (as_json(Page[QuestionView], "A page of questions, those of new sessions first."),),
              query=requests.QuestionsQuery, refuses=(404,)),
    Operation(
        "plans.one", "GET", "Show the plan of a session",
        (as_json(PlanView, "The plan as it is now.", headers=("ETag",)),
         ApiResponse(304, "The plan has not changed.", headers=("ETag",))),
        headers=("If-None-Match",), refuses=(409,),
    ),
    Operation(
        "plans.edit", "PATCH", "Change the tasks of a plan: all operations, or none",
        (as_json(PlanView, "The plan with the changes.", headers=("ETag",)),),
        body=PlanEdit, body_required=True, headers=("If-Match",), refuses=(409, 412),
    ),
    Operation("plans.approve", "POST", "Approve a plan's draft, so that its tasks start",
              (as_json(PlanView, "The approved plan.", 202, headers=("ETag",)),),
              body=requests.NoBody, refuses=(409,)),
    Operation("plans.changes", "POST", "Have the team lead change its draft",
              (as_json(PlanView, "The plan; its next draft replaces it.", 202,
                     headers=("ETag",)),),
              body=PlanChange, body_required=True, refuses=(409,)),
    Operation("plans.tasks", "GET", "List the tasks of a plan, in its order",
              (as_json(Page[TaskView], "All tasks."),), refuses=(409,)),
    Operation("plans.task", "GET", "Show a task of a plan",
              (as_json(TaskView, "The task as it is now."),), refuses=(409,)),
    Operation("plans.decide", "POST", "Accept or refuse a task that a child session proposed",
              (as_json(PlanView, "The plan with the decision.", headers=("ETag",)),),
              body=Decision, body_required=True, refuses=(409,)),
    Operation("plans.own_task", "GET", "Show the task that a child session carries out",
              (as_json(TaskView, "The task as its parent's plan has it."),), refuses=(409,)),
    Operation("plans.report", "POST", "Report about the task that a child session carries out",
              (as_json(ReportView, "The task's status with the report."),),
              body=TaskReport, body_required=True, headers=("Idempotency-Key",),
              refuses=(409,)),
    Operation("worktrees.all", "GET", "List the folders of all sessions, page by page",
              (as_json(Page[WorktreeView], "The folders of the next sessions, newest first."),),
              query=FoldersQuery),
    Operation("worktrees.audit", "POST", "Compare the folders at each place with the store",
              (as_json(FolderAuditView, "A session per place with a worker; its result text has the"
                       " findings.", 202),),
              body=FolderAuditBody, refuses=(409,)),
    Operation("worktrees.listed", "GET", "List the folders of a plan's tasks, or of a session",
              (as_json(Page[WorktreeView], "All folders, in the order of the plan."),),
              refuses=(409,)),
    Operation("worktrees.clean", "POST", "Remove the folders of ended tasks, or of a session",
              (as_json(CleaningView, "The session that removes them, and what must stay.", 202),),
              body=CleanBody, refuses=(409,)),
    Operation("worktrees.merges", "GET", "List the merges of a plan's tasks",
              (as_json(Page[MergeView], "The receipts, in the order of the plan."),),
              refuses=(409,)),
    Operation("worktrees.apply_plan", "POST", "Fast-forward a branch of yours to that of a plan",
              (as_json(HomeView, "The session that does it; it fails with the reason if the branch"
                       " must be left alone.", 202),),
              body=ApplyPlanBody, refuses=(409,)),
    Operation("worktrees.diff", "POST", "Compare a plan, or one task, with what it started from",
              (as_json(HomeView, "The session whose result has the diff as its text.", 202),),
              body=DiffBody, refuses=(409,)),
    Operation("worktrees.apply", "POST", "Bring a session's work into the folder it came from",
              (as_json(ApplyingView, "The session that does it.", 202),),
              body=ApplyBody, refuses=(409,)),
    Operation("flows.listed", "GET", "List the flows of the catalog, broken ones included",
              (as_json(Page[FlowView], "All flows, by name."),)),
    Operation("flows.one", "GET", "Show a flow of the catalog",
              (as_json(FlowView, "The flow as its file is now."),)),
    Operation(
        "flows.run", "POST", "Run a flow of the catalog; with a step token, as a child session",
        (as_json(SessionView, "The session, new or known by its key.", 202,
               headers=("Location", "ETag")),),
        query=requests.SubmitQuery, body=FlowRun, headers=("Idempotency-Key",),
        refuses=(409, 429), makes="session",
    ),
    Operation("flows.validate", "POST", "Validate a flow",
              (as_json(FlowCheckView, "Whether it could run here now, and all errors."),),
              body=JsonValue, body_required=True),
    Operation("workers.listed", "GET", "List the workers",
              (as_json(Page[WorkerView], "All live workers."),)),
    Operation("agents.listed", "GET", "List the agents",
              (as_json(Page[AgentView], "All agents, and where each can be used."),)),
    Operation("tools.listed", "GET", "List the tools",
              (as_json(Page[ToolView], "All tools of the workers, and where each can be used."),)),
    Operation("fleet.queues", "GET", "List the queues",
              (as_json(Page[QueueView], "All queues with a worker or a step."),)),
    Operation("fleet.fleet", "GET", "Show an overview of the fleet",
              (as_json(FleetView, "Sessions by status, queues, workers, overdue entries."),)),
    Operation("statistics.of_period", "GET", "Show the statistics of a period",
              (as_json(StatisticsView, "What ended, was checked and was used, by day and name."),),
              query=StatisticsQuery),
    Operation("fleet.metrics", "GET", "Read the fleet as metrics",
              (ApiResponse(200, "All metrics in the text format of Prometheus.",
                    {"text/plain": str}),)),
    Operation("fleet.fsck", "POST", "Audit the data in Redis and the broker",
              (as_json(FsckView, "The findings of a batch, and the cursor of the next call."),),
              body=FsckBody),
    Operation("store.show", "GET", "Show the store",
              (as_json(StoreView, "The store in Redis, and the one that the API remembers."),)),
    Operation("store.accept", "POST", "Accept the store",
              (as_json(StoreView, "The store as it is now."),), body=AcceptBody),
    Operation("limits.listed", "GET", "List the limits",
              (as_json(Page[Limit], "All limits."),)),
    Operation("limits.one", "GET", "Show a limit",
              (as_json(Limit, "The current limit.", headers=("ETag",)),)),
    Operation("limits.put", "PUT", "Set a limit",
              (as_json(Limit, "The current limit.", headers=("ETag",)),),
              body=LimitBody, body_required=True, headers=("If-Match",), refuses=(412,)),
    Operation("limits.delete", "DELETE", "Remove a limit", (_GONE,),
              headers=("If-Match",), refuses=(412,)),
    *_STACKS,
    *_WORK,
    Operation("tokens.create", "POST", "Create a token",
              (as_json(NewToken, "The token; its text is returned only once.", 201),),
              body=NewTokenBody, body_required=True, headers=("Idempotency-Key",), makes="token"),
    Operation("tokens.listed", "GET", "List the tokens",
              (as_json(Page[TokenView], "All tokens, without their secrets."),)),
    Operation("tokens.revoke", "DELETE", "Revoke a token", (_GONE,)),
    Operation("health.alive", "GET", "Check liveness",
              (as_json(Health, "The process is alive."),), query=None),
    Operation("health.ready", "GET", "Check readiness",
              (as_json(Health, "The process is ready."),), query=None, refuses=(503,)),
    Operation("description.document", "GET", "Describe this API (OpenAPI 3.1)",
              (as_json(dict[str, object], "This document."),), query=None),
    Operation("description.page", "GET", "Show this description as a page",
              (ApiResponse(200, "The page.", {"text/html": str}),), query=None),
)  # fmt: skip
