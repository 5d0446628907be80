"""Checkers: which verdict and which feedback come of a command, an agent or a function."""

from __future__ import annotations

import threading

import pytest

from app.core.program import Action
from leadhand.models.verdicts import ReasonCode
from tests.unit.workers.bodies.running import checking, code_of, scripted
from workers.registry.agent_entry import Agent
from workers.registry.tools import ToolCatalogue


@pytest.mark.parametrize(
    ("line", "verdict", "text", "decided_by"),
    [
        ("echo fine", "accept", "fine", "exit_code"),
        ("echo out; echo err >&2; false", "retry", "out\nerr", "exit_code"),
        ("exit 4", "retry", "Command exited with code 4", "exit_code"),
        ("kill -9 $$", "retry", "Command was killed by signal 9", "exit_code"),
    ],
)
def test_a_command_s_exit_code_is_its_verdict(body, line, verdict, text, decided_by) -> None:
    outcome = body(Action.CHECK, checking({"command": line}))
    assert (outcome.word, outcome.verdict) == ("succeeded", verdict)
    assert (outcome.text, outcome.decided_by) == (text, decided_by)


def test_feedback_is_what_a_terminal_shows_in_the_end(body) -> None:
    bar = r"for n in $(seq 3000); do printf '\r\033[32m%5d of 3000\033[0m' $n; done; echo"
    command = f"{bar}; echo 1 failed; exit 1"
    outcome = body(Action.CHECK, checking({"command": command}))
    assert outcome.text == "3000 of 3000\n1 failed"


#: Refuses the work with the doer's answer.
READS = """
import os

def judge(iteration):
    return False, open(os.environ["LEADHAND_RESULT_FILE"]).read()
"""


@pytest.mark.parametrize(
    "checker", [{"command": "{reads}; exit 1"}, {"rubric": "R.md"}, {"tool": "reads:judge"}]
)
def test_checker_reads_the_doer_s_answer_in_a_file(body, tmp_path, checker) -> None:
    reads = 'cat "$LEADHAND_RESULT_FILE"'
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "reads.py").write_text(READS)
    (tmp_path / "work" / "R.md").write_text(f"## Gates\n- `{reads}; exit 1`\n")
    given = {name: text.format(reads=reads) for name, text in checker.items()}
    shelf = ToolCatalogue([tmp_path / "tools"])
    outcome = body(Action.CHECK, checking(given, "It is \N{SNOWMAN}"), shelf=shelf)
    assert (outcome.verdict, "It is \N{SNOWMAN}" in outcome.text) == ("retry", True)


def test_doer_has_no_file_of_an_answer(body) -> None:
    doer = {
        "task": "Do it",
        "work": "no answer",
        "doer": {"command": "echo ${LEADHAND_RESULT_FILE-none}"},
    }
    assert body(Action.AGENT, doer).text == "none"


def test_a_slow_command_asks_for_a_retry(body) -> None:
    outcome = body(Action.CHECK, checking({"command": "sleep 60", "timeout_s": 0.5}))
    assert (outcome.word, outcome.verdict) == ("succeeded", "retry")
    assert outcome.text == "Checker command timed out after 0.5 seconds"


@pytest.mark.parametrize("line", ["no-such-linter", "/etc/passwd"])
def test_a_command_that_cannot_start_terminates(body, line) -> None:
    outcome = body(Action.CHECK, checking({"command": line}))
    assert (outcome.word, outcome.verdict) == ("succeeded", "terminate")
    assert outcome.text.startswith("Checker command could not start: ")


def test_a_cancelled_check_gives_no_verdict(body) -> None:
    cancel = threading.Event()
    cancel.set()
    outcome = body(Action.CHECK, checking({"command": "sleep 60"}), cancel=cancel)
    assert (outcome.word, outcome.verdict) == ("failed", None)


@pytest.mark.parametrize(
    ("code", "verdict", "text", "decided_by"),
    [
        ("print('Fine.'); print('ACCEPT')", "accept", "Fine.\nACCEPT", "line"),
        ("pass", "retry", "Checker agent 'x' produced no output", "empty"),
        (
            "raise SystemExit('no key')",
            "retry",
            "The checker failed: agent 'x' exited with code 1: no key",
            "failed",
        ),
    ],
)
def test_an_agent_s_last_word_is_its_verdict(body, code, verdict, text, decided_by) -> None:
    checker = {"prompt": "Is it good?", "agent": "x"}
    outcome = body(Action.CHECK, checking(checker), agents={"x": scripted(code)})
    assert (outcome.word, outcome.verdict) == ("succeeded", verdict)
    assert (outcome.text, outcome.decided_by) == (text, decided_by)


def test_the_doer_s_agent_judges_where_none_is_named(body) -> None:
    inputs = {**checking({"prompt": "Is it ACCEPTable?"}), "doer": {"agent": "parrot"}}
    outcome = body(Action.CHECK, inputs)
    assert "It is done." in outcome.text


@pytest.mark.parametrize("agent", ["gone", "unknown"])
def test_a_checker_agent_that_cannot_start_terminates(body, agent) -> None:
    agents = {"gone": Agent(command=("no-such-agent",))}
    outcome = body(Action.CHECK, checking({"prompt": "?", "agent": agent}), agents=agents)
    assert (outcome.word, outcome.verdict) == ("succeeded", "terminate")


@pytest.mark.parametrize(
    ("returned", "verdict", "text"),
    [
        ("True", "accept", ""),
        ("False", "retry", ""),
        ("('retry', 'mend it')", "retry", "mend it"),
        ("(True, 'well done')", "accept", "well done"),
        ("{'verdict': 'TERMINATE', 'feedback': 'no'}", "terminate", "no"),
        ("'all fine\\nACCEPT'", "accept", "all fine\nACCEPT"),
        ("None", "retry", "Checker 'judging:judge' returned no verdict but None"),
        ("{'ok': 1}", "retry", "Checker 'judging:judge' returned no verdict but {'ok': 1}"),
    ],
)
def test_what_a_function_returns_is_the_verdict(body, tmp_path, returned, verdict, text) -> None:
    code = f"def judge(work, history):\n    assert work == 'It is done.'\n    return {returned}\n"
    (tmp_path / "work" / "judging.py").write_text(code)
    outcome = body(Action.CHECK, checking({"callable": "judging:judge"}))
    assert (outcome.word, outcome.verdict, outcome.text) == ("succeeded", verdict, text)


def test_a_failed_assertion_is_feedback_and_a_missing_function_the_end(body, tmp_path) -> None:
    code = "def judge(work):\n    assert 'tests' in work, 'say what you tested'\n"
    (tmp_path / "work" / "judging.py").write_text(code)
    refused = body(Action.CHECK, checking({"callable": "judging:judge"}))
    assert (refused.verdict, refused.decided_by) == ("retry", "raised")
    assert "AssertionError: say what you tested" in refused.text
    assert "leadhand" not in refused.text
    missing = body(Action.CHECK, checking({"callable": "judging:gone"}))
    assert (missing.verdict, missing.decided_by) == ("terminate", "not_started")


def test_the_judge_keeps_every_check(body) -> None:
    told = {"word": "succeeded", "verdict": "retry", "text": "two fail", "exit_code": 1}
    outcome = body(
        Action.JUDGE,
        {
            "rule": "all",
            "work": "w",
            "checks": [
                {"name": "tests", "outcome": {**told, "of_a_newer_worker": 1}},
                {"name": "lint", "outcome": {"word": "succeeded", "verdict": "accept"}},
            ],
        },
    )
    assert (outcome.word, outcome.verdict) == ("succeeded", "retry")
    assert outcome.text == "## tests (retry)\n\ntwo fail"
    assert outcome.value == {
        "checks": [
            {
                "name": "tests",
                "verdict": "retry",
                "counts": None,
                "feedback": "two fail",
                "exit_code": 1,
            },
            {"name": "lint", "verdict": "accept", "counts": None, "feedback": ""},
        ]
    }


def test_a_lost_checker_is_down(body) -> None:
    outcome = body(Action.JUDGE, {"rule": "all", "checks": [{"name": "a", "outcome": None}]})
    assert (outcome.verdict, code_of(outcome)) == ("terminate", ReasonCode.CHECKER_DOWN)
    assert outcome.value["checks"][0]["verdict"] is None
