"""What the client says: its errors, results and settings."""

from __future__ import annotations

import pickle

import pytest

from app import views as served
from leadhand import errors, views
from leadhand.errors import LeadhandError, SettingInvalid, refused
from leadhand.patience import Patience
from leadhand.problems import Kind, Problem
from leadhand.results import LoopResult, PhaseResult, phase_results
from leadhand.settings import ClientSettings
from leadhand.views import PhaseView, ResultView

PROBLEM = Problem(title="No such session", status=404, detail="session 'x' is not found")
ERRORS: list[LeadhandError] = [
    errors.SettingInvalid("LEADHAND_URL", "x", "give an address"),
    errors.ApiAway("http://127.0.0.1:1", "refused"),
    errors.AnswerUnreadable("http://127.0.0.1:1", 200),
    errors.WaitTimedOut("0000000a", "active", 1.5),
    errors.Refused(PROBLEM, 404),
    errors.SessionUnknown(PROBLEM, 404),
    errors.IdempotencyConflict(PROBLEM, 422),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_survives_a_pickle(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.args, str(again)) == (type(error), error.args, str(error))
    assert str(error)


@pytest.mark.parametrize(
    ("kind", "status", "named"),
    [
        (Kind.SESSION_UNKNOWN, 404, errors.SessionUnknown),
        (Kind.SESSION_STILL_RUNS, 409, errors.SessionStillRuns),
        (Kind.CONTROL_REFUSED, 409, errors.ControlRefused),
        (Kind.IDEMPOTENCY_CONFLICT, 422, errors.IdempotencyConflict),
        (Kind.INVALID, 422, errors.RequestInvalid),
        (Kind.MALFORMED, 400, errors.RequestInvalid),
        (Kind.BLANK, 413, errors.RequestInvalid),
        (Kind.UNAUTHENTICATED, 401, errors.TokenRefused),
        (Kind.FORBIDDEN, 403, errors.TokenRefused),
        (Kind.STORE_AWAY, 503, errors.Unavailable),
        (Kind.TOO_MANY_STREAMS, 503, errors.Unavailable),
        (Kind.INTERNAL, 500, errors.Refused),
        (Kind.BLANK, 418, errors.Refused),
    ],
)
def test_every_problem_has_its_error(kind, status, named):
    error = refused(Problem(type=kind.uri, title="t", status=status), status)
    assert (type(error), error.status) == (named, status)


def result(verdict: str | None, status: str, **more: object) -> ResultView:
    given = {"session_id": "0000000a", "kind": "loop", "iterations": 2, **more}
    return ResultView.model_validate({**given, "verdict": verdict, "status": status})


@pytest.mark.parametrize(
    ("verdict", "status", "reads"),
    [
        ("accept", "completed", "accept"),
        ("terminate", "failed", "terminate"),
        ("max_iterations", "failed", "max_iterations"),
        ("exit", "exited", "exit"),
        (None, "stopped", "terminate"),
        (None, "aborted", "terminate"),
    ],
)
def test_a_loop_reads_as_one_of_four_verdicts(verdict, status, reads):
    assert LoopResult.from_view(result(verdict, status)).verdict == reads


def test_a_loop_result_has_a_history_of_its_own():
    one, other = LoopResult("a", "accept", 1), LoopResult("b", "accept", 1)
    one.history.append({"iteration": 1})
    assert (other.history, other.result_text, other.exit_reason) == ([], "", "")


def test_a_history_is_made_of_plain_dicts():
    entry = {"loop": "loop~1", "run": 1, "iteration": 1, "verdict": "retry", "feedback": "more"}
    [read] = LoopResult.from_view(result("accept", "completed", history=[entry])).history
    assert (read["iteration"], read["verdict"], read["feedback"]) == (1, "retry", "more")


def test_phases_are_read_in_their_order_with_what_they_came_to():
    names = ["red", "green", "blue"]
    phases = [
        PhaseView(name=n, passed=n != "blue", verdict="accept", iterations=1, result_text=n)
        for n in names
    ]
    read = phase_results(result("accept", "completed", phases=phases))
    assert list(read) == names
    blue = read["blue"]
    assert (blue.phase_name, blue.passed, blue.result_text) == ("blue", False, "blue")
    assert (blue.verdict, blue.exit_reason, blue.loop_result.session_id) == (
        "accept", "", "0000000a",
    )  # fmt: skip


@pytest.mark.parametrize(("word", "reads"), [("retry", "max_iterations"), ("", "terminate")])
def test_a_phase_without_a_loop_verdict_reads_as_ended_without_acceptance(word, reads):
    view = PhaseView(name="a", passed=False, verdict=word, iterations=1)
    assert PhaseResult.from_view(view, session_id="0000000a").verdict == reads


@pytest.mark.parametrize(
    "name",
    [
        "SessionView", "StepView", "LedgerEntry", "PhaseView", "ResultView", "Event",
        "WorkerView", "Counters", "NodeProgress", "RunningStep", "Progress", "Page", "Running",
        "ExportView", "BulkView", "BulkRefusal",
        "QueueView", "Overdue", "FleetView",
    ],
)  # fmt: skip
def test_a_client_reads_every_field_that_the_api_shows(name):
    shown = getattr(served, name).model_fields
    read = getattr(views, name).model_fields
    assert set(read) == set(shown)
    assert {n for n, f in read.items() if f.is_required()} == {
        n for n, f in shown.items() if f.is_required()
    }


def test_a_client_passes_over_fields_that_it_does_not_know():
    assert result("accept", "completed", of_tomorrow=1).iterations == 2


def test_settings_are_read_from_the_environment_and_empty_ones_are_absent():
    env = {"LEADHAND_URL": "https://host/leadhand", "LEADHAND_TOKEN": "", "LEADHAND_ITERATION": "2"}
    settings = ClientSettings.from_env(env)
    assert (settings.url, settings.token, settings.iteration) == (env["LEADHAND_URL"], None, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("LEADHAND_URL", "127.0.0.1:8765"), ("LEADHAND_URL", "http://"), ("LEADHAND_ITERATION", "x")],
)
def test_a_setting_that_cannot_be_used_is_named(name, value):
    with pytest.raises(SettingInvalid) as caught:
        ClientSettings.from_env({name: value})
    assert (caught.value.name, caught.value.value) == (name, value)


class Clock:
    """A time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


def test_patience_waits_longer_each_time_and_never_beyond_its_limit():
    clock = Clock()
    patience = Patience(20, clock=clock, sleep=clock.sleep)
    while patience.pause():
        pass
    assert clock.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert clock.now <= 20


def test_patience_waits_as_long_as_it_is_asked_to():
    clock = Clock()
    patience = Patience(10, clock=clock, sleep=clock.sleep)
    assert patience.pause(2)
    assert patience.pause(0)
    assert clock.slept == [2, 0.2]
    assert not patience.pause(60)


def test_patience_renewed_is_patience_anew():
    clock = Clock()
    patience = Patience(1, clock=clock, sleep=clock.sleep)
    while patience.pause():
        pass
    patience.renew()
    assert not patience.tried
    assert patience.pause()
