"""Each error keeps its problem: type, status, texts, headers and the class that clients raise."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from werkzeug.exceptions import MethodNotAllowed, NotFound, RequestEntityTooLarge

from api.problems import refusal_of
from api.requests import wrong_media_type
from app import errors as core
from leadhand import errors
from leadhand.contract import flows, sessions, tokens
from leadhand.contract.fleet import key_of_limit
from leadhand.contract.requests import path_of
from leadhand.contract.stacks import Stacks
from leadhand.errors import REFUSALS, Refused, error_for
from leadhand.models.forms import Unfit
from leadhand.models.problems import FieldProblem, Problem
from leadhand.models.views.plan import PlanView
from leadhand.models.views.session import BatchItemView

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
    "limit changed": errors.LimitChanged("model:one"),
    "limit unknown": errors.LimitUnknown("model:one"),
    "idempotency conflict": errors.IdempotencyConflict("key"),
    "invalid document": core.InvalidDocument("place", "mars", "no worker is at this place"),
    "several invalid fields": core.SeveralInvalid(
        [
            core.InvalidDocument("steps[0].tool", "a", "no worker has this tool"),
            core.InvalidDocument("steps[1].tool", "b", "no worker has this tool"),
        ]
    ),
    "parent rests": core.ParentRests(),
    "position refused": core.PositionRefused("after", "x", "it names no step"),
    "flow unknown": errors.FlowUnknown("review", ("/flows",), ["nested", "reviews"]),
    "flow unknown without folders": errors.FlowUnknown("review", ()),
    "flow disabled": errors.FlowDisabled("review", "steps.0: no such step"),
    "answer unwanted": errors.AnswerUnwanted("0000000a", "no step waits"),
    "message refused": errors.MessageRefused("0000000a", "it is completed"),
    "lock taken": errors.LockTaken("x", "session 0000000a (do) since then holds it"),
    "lock lost": errors.LockLost("h", "x"),
    "lock refused": errors.LockRefused("x", "100 wait for it already", "try again later"),
    "value unknown": errors.ValueUnknown("k", "0000000a"),
    "value changed": errors.ValueChanged(3, "k", 4),
    "value changed to none": errors.ValueChanged(3, "k", 0),
    "no active workflow": errors.NoActiveWorkflow("s"),
    "workflow unknown": errors.WorkflowUnknown("0000000a"),
    "workflow not stacked": errors.WorkflowNotStacked("0000000a"),
    "stack refused": errors.StackRefused("s", "stack", "stack 's' is full", "end some"),
    "value refused": errors.ValueRefused("k", "the tree has 1000 keys", "delete some"),
    "no plan": errors.NoPlan("0000000a", "it is a loop; plans are of kind plan"),
    "plan changed": errors.PlanChanged("0000000a", 7),
    "plan refused": errors.PlanRefused("0000000a", "b", "it has started", 2),
    "plan refused as a whole": errors.PlanRefused("0000000a", "", "the session is aborted"),
    "report late": errors.ReportLate("0000000a", "failed"),
    "reference unresolved": core.ReferenceUnresolved("${a}", "b"),
    "capability refused": core.CapabilityRefused("the token has expired"),
    "spec foreign": core.SpecForeign("0000000a", "it is not signed"),
    "export owed": core.ExportOwed("0000000a", "the disk is full"),
    "program newer": errors.ProgramNewer(),
    "artifact unknown": errors.ArtifactUnknown("0000000a", "00"),
    "artifact changed": errors.ArtifactChanged("00", "bytes 0 to 7 are missing"),
    "artifacts full": errors.ArtifactsFull("its disk is full; make room there"),
    "token unknown": errors.TokenUnknown("0123456789ab"),
    "label taken": errors.LabelTaken("nightly", "0000000a"),
    "tree limit": errors.TreeLimitReached("children", 100, "0000000a"),
    "quota passed": errors.QuotaPassed("sessions", 3),
    "quota passed for a day": errors.QuotaPassed("steps", 3, 60),
    "setting invalid": errors.SettingInvalid("LEADHAND_URL", "x", "give an address"),
    "program stale": core.ProgramStale(),
    "key damaged": errors.KeyDamaged(),
    "store away": errors.StoreAway("secret:6379"),
    "store full": errors.StoreFull("secret:6379"),
    "store forbids": errors.StoreForbids("secret:6379"),
    "store unfit": errors.StoreUnfit("secret:6379", "it is a replica"),
    "store read-only": errors.StoreReadOnly("secret:6379"),
    "store unknown": errors.StoreUnknown("secret:6379", "empty"),
    "schema differs": errors.SchemaDiffers("2", "1"),
    "secret differs": errors.SecretDiffers("lh:secret"),
    "worker name taken": core.WorkerNameTaken("w", "here", 42),
    "malformed": errors.Malformed("no JSON", field="body", hint="send JSON"),
    "invalid": errors.RequestInvalid.of_fields((FIELD,)),
    "invalid twice": errors.RequestInvalid.of_fields((FIELD, FIELD)),
    "unauthenticated": errors.TokenInvalid(),
    "not admitted": errors.TokenInvalid("the token has expired"),
    "forbidden": errors.TokenRefused("no scope", hint="ask for it"),
    "plan changed, with the plan": errors.PlanChanged.of("it is at 7 now").with_plan(PLAN),
    "task unknown": errors.TaskUnknown("0000000a", "tets", ["tests", "docs"]),
    "task unknown without tasks": errors.TaskUnknown("0000000a", "tets", []),
    "wrong media type": wrong_media_type("text/plain"),
    "no media type": wrong_media_type(""),
    "too many streams": errors.TooManyStreams(7),
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


#: Errors that no response has.
UNSENT: list[errors.LeadhandError] = [
    errors.SettingInvalid("LEADHAND_URL", None, "give an address"),
    errors.ApiAway("http://127.0.0.1:1", "refused"),
    errors.AnswerUnreadable("http://127.0.0.1:1", 200),
    errors.WaitTimedOut("0000000a", "active", 1.5),
    errors.BatchStopped([BatchItemView(session="0000000a")], ["a", "b"], "items.1 is invalid"),
    errors.InternalFault(),
    core.EnvironmentSealed("0000000a"),
    core.ValueMissing("${a}", "b", "step a was skipped"),
    core.AnswerUnfit("0000000a", "ask", [Unfit("text", "it is missing", "write a text")]),
]


def raised_by(call: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        call()
    assert caught.value.status == caught.value.problem.status
    return caught.value


def sent(error: Refused) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(error.problem.model_dump_json(exclude_none=True))
    return shown


@pytest.mark.parametrize("name", ERRORS)
def test_a_client_raises_what_the_server_raised(name):
    refusal = refusal_of(ERRORS[name])
    problem = sent(refusal)
    raised = error_for(Problem.model_validate(problem), refusal.status)
    told = {"problem": problem, "headers": dict(refusal.headers), "raised": type(raised).__name__}
    assert told == RECORDED[name]
    assert (type(raised), raised.problem) == (refusal.seen_as, refusal.problem)
    assert raised.exit_code == refusal.exit_code == 1
    for one in (refusal, raised):
        assert alike(pickle.loads(pickle.dumps(one)), one)


@pytest.mark.parametrize("error", UNSENT, ids=lambda one: type(one).__name__)
def test_every_error_survives_a_pickle(error):
    assert alike(pickle.loads(pickle.dumps(error)), error)
    assert str(error)


def alike(one: Exception, other: Exception) -> bool:
    of = [(type(e), e.args, str(e), getattr(e, "problem", None)) for e in (one, other)]
    return of[0] == of[1]


@pytest.mark.parametrize("name", CALLS)
def test_client_refuses_with_the_problem_of_the_api(name):
    error = raised_by(CALLS[name])
    assert {"problem": sent(error), "raised": type(error).__name__} == RECORDED[name]


@pytest.mark.parametrize("declared", REFUSALS.values(), ids=lambda one: one.kind.code)
def test_every_type_keeps_its_error(declared):
    kind = declared.kind
    status = RECORDED["statuses"].get(kind.code, 418)
    error = error_for(Problem(type=kind.uri, title="t", status=status), status)
    assert type(error).__name__ == RECORDED["raised"][kind.code]


@pytest.mark.parametrize("status", RECORDED["by status"])
def test_every_status_without_a_known_type_keeps_its_error(status):
    error = error_for(Problem(title="t", status=int(status)), int(status))
    assert type(error).__name__ == RECORDED["by status"][status]


def test_every_type_and_every_error_is_recorded():
    assert {one.kind.code for one in REFUSALS.values()} == RECORDED["raised"].keys()
    bases = {"LeadhandError", "Refused", "_OfStatus", "ArtifactRefused", "Unavailable"}
    ours = {type(error).__name__ for error in [*ERRORS.values(), *UNSENT]} | bases
    declared = {**vars(errors), **vars(core)}.values()
    classes = {one for one in declared if isinstance(one, type) and issubclass(one, Exception)}
    assert {one.__name__ for one in classes} <= ours
