"""Each error keeps its problem: type, status, texts, headers and the class that clients raise."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from werkzeug.exceptions import MethodNotAllowed, NotFound, RequestEntityTooLarge

from api import problem_types
from api.problems import refusal_of
from app import errors
from app.artifacts import errors as artifact_errors
from app.domain import plan_errors, shared_errors, stack_errors
from app.domain.messages import MessageRefused
from app.operations.create_errors import TreeLimitReached
from leadhand.contract import flows, sessions, tokens
from leadhand.contract.fleet import key_of_limit
from leadhand.contract.requests import path_of
from leadhand.contract.stacks import Stacks
from leadhand.errors import Refused, error_for
from leadhand.models.problems import FieldProblem, Kind, Problem
from leadhand.models.views.plan import PlanView

#: What an earlier version answered, by the names below.
RECORDED = json.loads((Path(__file__).parent / "problems.json").read_text())

FIELD = FieldProblem(field="task", value='""', message="it is empty", hint="say what to do")
PLAN = PlanView(session="0000000a", state="refining", version=7, request="Build it.")
#: Errors as the API meets them.
ERRORS: dict[str, Exception] = {
    "session unknown": errors.SessionUnknown("0000000a"),
    "session still runs": errors.SessionStillRuns("0000000a", "active"),
    "control refused": errors.ControlRefused("0000000a", "stop", "failed"),
    "control refused with a hint": errors.ControlRefused("0000000a", "stop", "failed", "resume it"),
    "session changed": errors.SessionChanged("0000000a", "active"),
    "limit changed": shared_errors.LimitChanged("model:one"),
    "limit unknown": shared_errors.LimitUnknown("model:one"),
    "idempotency conflict": errors.IdempotencyConflict("key"),
    "invalid document": errors.InvalidDocument("place", "mars", "no worker is at this place"),
    "several invalid fields": errors.SeveralInvalid(
        [
            errors.InvalidDocument("steps[0].tool", "a", "no worker has this tool"),
            errors.InvalidDocument("steps[1].tool", "b", "no worker has this tool"),
        ]
    ),
    "parent rests": errors.ParentRests({"session": "0000000a"}),
    "position refused": errors.PositionRefused("after", "x", "it names no step"),
    "flow unknown": errors.FlowUnknown("review", ("/flows",), ["nested", "reviews"]),
    "flow unknown without folders": errors.FlowUnknown("review", ()),
    "flow disabled": errors.FlowDisabled("review", "steps.0: no such step"),
    "answer unwanted": errors.AnswerUnwanted("0000000a", "no step waits"),
    "message refused": MessageRefused("0000000a", "it is completed"),
    "lock taken": shared_errors.LockTaken("x", "session 0000000a (do) since then holds it"),
    "lock lost": shared_errors.LockLost("h", "x"),
    "lock refused": shared_errors.LockRefused("x", "100 wait for it already", "try again later"),
    "value unknown": shared_errors.ValueUnknown("k", "0000000a"),
    "value changed": shared_errors.ValueChanged(3, "k", 4),
    "value changed to none": shared_errors.ValueChanged(3, "k", 0),
    "no active workflow": stack_errors.NoActiveWorkflow("s"),
    "workflow unknown": stack_errors.WorkflowUnknown("0000000a"),
    "workflow not stacked": stack_errors.WorkflowNotStacked("0000000a"),
    "stack refused": stack_errors.StackRefused("s", "stack", "stack 's' is full", "end some"),
    "value refused": shared_errors.ValueRefused("k", "the tree has 1000 keys", "delete some"),
    "no plan": plan_errors.NoPlan("0000000a", "it is a loop; plans are of kind plan"),
    "plan changed": plan_errors.PlanChanged("0000000a", 7),
    "plan refused": plan_errors.PlanRefused("0000000a", "b", "it has started", 2),
    "plan refused as a whole": plan_errors.PlanRefused("0000000a", "", "the session is aborted"),
    "report late": plan_errors.ReportLate("0000000a", "failed"),
    "reference unresolved": errors.ReferenceUnresolved("${a}", "b"),
    "capability refused": errors.CapabilityRefused("the token has expired"),
    "spec foreign": errors.SpecForeign("0000000a", "it is not signed"),
    "export owed": errors.ExportOwed("0000000a", "the disk is full"),
    "program newer": errors.ProgramNewer("p"),
    "artifact unknown": artifact_errors.ArtifactUnknown("0000000a", "00"),
    "artifact changed": artifact_errors.ArtifactChanged("00", "bytes 0 to 7 are missing"),
    "artifacts full": artifact_errors.ArtifactsFull("its disk is full; make room there"),
    "token unknown": errors.TokenUnknown("0123456789ab"),
    "label taken": errors.LabelTaken("nightly", "0000000a"),
    "tree limit": TreeLimitReached("children", 100, "0000000a"),
    "quota passed": errors.QuotaPassed("sessions", 3),
    "quota passed for a day": errors.QuotaPassed("steps", 3, 60),
    "setting invalid": errors.SettingInvalid("LEADHAND_URL", "x", "give an address"),
    "program stale": errors.ProgramStale(),
    "key damaged": errors.KeyDamaged(),
    "store away": errors.StoreAway("secret:6379"),
    "store full": errors.StoreFull("secret:6379"),
    "store forbids": errors.StoreForbids("secret:6379"),
    "store unfit": errors.StoreUnfit("secret:6379", "it is a replica"),
    "store read-only": errors.StoreReadOnly("secret:6379"),
    "store unknown": errors.StoreUnknown("secret:6379", "empty"),
    "schema differs": errors.SchemaDiffers("2", "1"),
    "secret differs": errors.SecretDiffers("lh:secret"),
    "worker name taken": errors.WorkerNameTaken("w", "here", 42),
    "malformed": problem_types.malformed("no JSON", field="body", hint="send JSON"),
    "invalid": problem_types.invalid((FIELD,)),
    "invalid twice": problem_types.invalid((FIELD, FIELD)),
    "unauthenticated": problem_types.unauthenticated(),
    "not admitted": problem_types.not_admitted("the token has expired"),
    "forbidden": problem_types.forbidden("no scope", hint="ask for it"),
    "plan changed, with the plan": problem_types.plan_changed("it is at 7 now", PLAN),
    "task unknown": problem_types.task_unknown("0000000a", "tets", ["tests", "docs"]),
    "task unknown without tasks": problem_types.task_unknown("0000000a", "tets", []),
    "wrong media type": problem_types.wrong_media_type("text/plain"),
    "no media type": problem_types.wrong_media_type(""),
    "too many streams": problem_types.too_many_streams(7),
    "not found": NotFound(),
    "method not allowed": MethodNotAllowed(["GET"]),
    "too large": RequestEntityTooLarge(),
    "a fault": ZeroDivisionError(),
}
#: Calls that a client refuses by itself.
CALLS: dict[str, Callable[[], object]] = {
    "client: session": lambda: path_of(sessions.SHOW, "no id"),
    "client: flow": lambda: path_of(flows.SHOW, ""),
    "client: limit": lambda: key_of_limit("nothing"),
    "client: token": lambda: path_of(tokens.REVOKE, "no id"),
    "client: workflow session": lambda: Stacks().abort_workflow("s", "why", workflow=""),
}


def answered(error: Exception) -> dict[str, Any]:
    refusal = refusal_of(error)
    told = json.loads(refusal.problem.model_dump_json(exclude_none=True))
    raised = error_for(refusal.problem, refusal.problem.status)
    return {"problem": told, "headers": refusal.headers, "raised": type(raised).__name__}


def raised_by(call: Callable[[], object]) -> dict[str, Any]:
    with pytest.raises(Refused) as caught:
        call()
    told = json.loads(caught.value.problem.model_dump_json(exclude_none=True))
    assert caught.value.status == told["status"]
    return {"problem": told, "raised": type(caught.value).__name__}


@pytest.mark.parametrize("name", ERRORS)
def test_error_keeps_its_problem(name):
    assert answered(ERRORS[name]) == RECORDED[name]


@pytest.mark.parametrize("name", CALLS)
def test_client_refuses_with_the_problem_of_the_api(name):
    assert raised_by(CALLS[name]) == RECORDED[name]


@pytest.mark.parametrize("kind", Kind)
def test_every_type_keeps_its_error(kind):
    status = RECORDED["statuses"].get(kind.value, 418)
    error = error_for(Problem(type=kind.uri, title="t", status=status), status)
    assert type(error).__name__ == RECORDED["raised"][kind.value]


@pytest.mark.parametrize("status", RECORDED["by status"])
def test_every_status_without_a_known_type_keeps_its_error(status):
    error = error_for(Problem(title="t", status=int(status)), int(status))
    assert type(error).__name__ == RECORDED["by status"][status]


def test_every_type_and_every_error_of_the_core_is_recorded():
    assert {kind.value for kind in Kind} == RECORDED["raised"].keys()
    named = {n for n, e in vars(errors).items() if isinstance(e, type)} - {"LeadhandError"}
    ours = {type(error).__name__ for error in ERRORS.values()}
    assert {n for n in named if issubclass(getattr(errors, n), errors.LeadhandError)} <= ours
