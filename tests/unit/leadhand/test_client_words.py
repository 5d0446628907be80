"""The client's texts: errors, results and settings."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from leadhand.cli.render.result_text import ending, workflow_summary
from leadhand.cli.render.session_text import reason_line, session_lines
from leadhand.cli.show import in_order_of_time, why_no_diffs
from leadhand.client.transport import Patience
from leadhand.errors import (
    SettingInvalid,
)
from leadhand.models.views.result import LedgerEntry, PhaseView, ResultView
from leadhand.models.views.session import SessionView
from leadhand.models.views.step import DiffView, NoDiffs, NoDiffsWhy
from leadhand.results import LoopResult, PhaseResult, phase_results
from leadhand.settings import ClientSettings

AT = "2026-11-21T12:00:00Z"


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
    """A clock that advances only in `sleep`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)

    def pause(self, patience: Patience, asked_s: float | None = None) -> bool:
        """Sleep for the next pause; False where no time is left, as both transports do."""
        pause_s = patience.next_pause_s(asked_s)
        if pause_s is not None:
            self.sleep(pause_s)
        return pause_s is not None


def test_patience_waits_longer_each_time_and_never_beyond_its_limit():
    clock = Clock()
    patience = Patience(20, clock=clock)
    while clock.pause(patience):
        pass
    assert clock.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert clock.now <= 20


def test_patience_waits_as_long_as_it_is_asked_to():
    clock = Clock()
    patience = Patience(10, clock=clock)
    assert clock.pause(patience, 2)
    assert clock.pause(patience, 0)
    assert clock.slept == [2, 0.2]
    assert not clock.pause(patience, 60)


def test_patience_renewed_is_patience_anew():
    clock = Clock()
    patience = Patience(1, clock=clock)
    while clock.pause(patience):
        pass
    patience.renew()
    assert not patience.tried
    assert clock.pause(patience)


def workflow(status: str, ends: str | None, **phase: object) -> ResultView:
    done = {"name": "red", "passed": True, "verdict": "accept", "iterations": 1}
    last = {"name": "green", "passed": False, "iterations": 1, "verdict": "terminate", **phase}
    reason = {"code": "user_stop" if ends is None else "max_iterations", "text": "why"}
    return ResultView.model_validate({
        "session_id": "0000000a", "kind": "workflow", "iterations": 2, "status": status,
        "verdict": ends, "reason": reason, "phases": [done, last],
    })  # fmt: skip


@pytest.mark.parametrize("status", ["stopped", "aborted"])
def test_a_phase_that_was_stopped_is_not_shown_as_terminated(status: str) -> None:
    _, head, red, green, *_ = workflow_summary(workflow(status, None))
    assert head.split()[:2] == ["PHASE", "VERDICT"]
    assert (red.split()[:2], green.split()[:2]) == (["red", "accept"], ["green", status])


def test_the_reason_of_a_workflow_that_failed_names_the_phase() -> None:
    reason = {"code": "max_iterations", "text": "why"}
    result = workflow("failed", "max_iterations", verdict="max_iterations", reason=reason)
    assert ending(result) == "max_iterations after 2 iterations: phase 'green': why"
    assert "green  max_iterations" in "\n".join(workflow_summary(result))


def ended_session(kind: str, at: str) -> SessionView:
    beneath = {"code": "failed_step", "text": "the doer failed", "at": at}
    return SessionView.model_validate(
        {
            "id": "0000000a", "kind": kind, "name": "w", "status": "failed", "root": "0000000a",
            "created_at": AT, "updated_at": AT,
            "reason": {"code": "terminated", "text": "it ended", "beneath": beneath},
            "progress": {"nodes": [
                {"node": "phase-1", "label": "plan it", "state": "closed"},
                {"node": "phase-2", "label": "build it", "state": "closed"},
            ]},
        }
    )  # fmt: skip


def test_ls_and_show_name_the_phase_of_a_reason() -> None:
    view = ended_session("workflow", "phase-2~1[3]/do")
    assert reason_line(view) == "phase 'build it': it ended: the doer failed"
    assert "reason   phase 'build it': it ended: the doer failed" in list(session_lines(view, []))
    assert reason_line(ended_session("workflow", "phase-9~1")) == "it ended: the doer failed"
    assert reason_line(ended_session("flow", "phase-2~1")) == "it ended: the doer failed"
    assert reason_line(view.model_copy(update={"status": "completed"})) == ""


def test_diffs_are_shown_in_order_of_time_or_with_why_there_are_none() -> None:
    """A resume that began again at an earlier phase opened its second run."""
    ran = ["phase-1~1[1]", "phase-2~1[1]", "phase-1~2[1]", "phase-2~2[1]"]
    ledger = [
        LedgerEntry(loop=one, run=1, iteration=1, verdict="retry", doer=f"{one}/do", started_ms=n)
        for n, one in enumerate(ran)
    ]
    diffs = [
        DiffView(address=f"{one}/do", loop=one, iteration=1, before="", after="", patch="")
        for one in ["phase-2~3[1]", *sorted(ran)]
    ]
    shown = [diff.loop for diff in in_order_of_time(diffs, ledger)]
    assert shown == [*ran, "phase-2~3[1]"]
    not_ended = NoDiffs(why="not_ended", folder="/f")
    assert why_no_diffs(not_ended, [], None).endswith("no iteration has ended yet")
    assert why_no_diffs(not_ended, ledger, 7) == "no iteration 7 has ended; the last one is 1"


@pytest.mark.parametrize(
    ("why", "iteration", "text"),
    [
        ("no_folder", None, "the session has no folder"),
        ("no_git", None, "git is not installed on the worker, so /f cannot be compared"),
        ("slow", 2, "/f is too large, or took too long to read"),
        ("unchanged", None, "no iteration changed a file"),
        ("unchanged", 2, "iteration 2 changed no file"),
        ("not_ended", 2, "no doer of iteration 2 has ended yet"),
        ("replaced", 2,
         "newer ones replaced the diffs of iteration 2 (a session keeps the last 200, and 4 MiB)"),
    ],
)  # fmt: skip
def test_the_reason_for_no_diffs_is_one_sentence(
    why: NoDiffsWhy, iteration: int | None, text: str
) -> None:
    none = NoDiffs(why=why, folder=None if why == "no_folder" else "/f")
    assert why_no_diffs(none, [], iteration) == f"no changes are stored: {text}"


def test_ledger_shows_the_tests_of_a_check_and_whether_it_is_flaky() -> None:
    counts: dict[str, JsonValue] = {"passed": 12, "failed": 0, "skipped": 3, "collected": 15}
    checks: list[dict[str, JsonValue]] = [
        {"name": "pytest", "verdict": "accept", "counts": counts},
        {"name": "flips", "verdict": "retry", "counts": None, "flaky": ["a::b"]},
    ]
    entry = LedgerEntry(loop="loop", run=1, iteration=1, verdict="accept", checks=checks)
    lines = list(session_lines(ended_session("loop", "loop~1"), [entry]))
    assert "  pytest: accept, 12 passed, 3 skipped" in lines
    assert "  flips: flaky" in lines
