"""Answers of checkers that are no verdict: agents are asked once more, all others are not."""

from __future__ import annotations

import json
import threading

import pytest

from app.core.outcomes import Usage
from app.core.program import Action
from leadhand.models.verdicts import ReasonCode
from tests.unit.workers.bodies.running import checking, code_of, scripted
from workers.prompts import VERDICT_QUESTION
from workers.registry.agent_entry import Agent, UsagePaths

ASKED = checking({"prompt": "Is it good?", "agent": "x"})

#: Notes each prompt and each argument, and answers with the next line of `answers`.
ANSWERS = """
import json, sys
asked = json.load(open("asked")) if __import__("os").path.exists("asked") else []
json.dump([*asked, sys.argv[1:]], open("asked", "w"))
answer = json.load(open("answers"))[len(asked)]
"""


@pytest.fixture
def ask(body, tmp_path):
    """Runs a check by an agent that gives these answers; returns the outcome and what it heard."""
    folder = tmp_path / "work"

    def run(answers, *, code="print(answer)", inputs=ASKED, agent=None, **given):
        (folder / "answers").write_text(json.dumps(answers))
        agents = {"x": scripted(ANSWERS + code, **(agent or {}))}
        outcome = body(Action.CHECK, inputs, agents=agents, **given)
        return outcome, json.loads((folder / "asked").read_text())

    return run


@pytest.mark.parametrize(
    ("second", "verdict", "decided_by"),
    [
        ("ACCEPT", "accept", "line"),
        ("RETRY.", "retry", "line"),
        ('{"verdict": "terminate"}', "terminate", "json"),
        ("I said that it is good.", "retry", "none"),
        ("", "retry", "none"),
    ],
)
def test_unclear_agent_is_asked_once_more(ask, second, verdict, decided_by) -> None:
    outcome, asked = ask(["Looks good. ACCEPT", second])
    assert (outcome.verdict, outcome.decided_by) == (verdict, decided_by)
    assert len(asked) == 2
    question = asked[1][0]
    assert "\nLooks good. ACCEPT\n===== END" in question, "it does not remember its answer"
    assert question.endswith(f"\n\n{VERDICT_QUESTION}\n")
    assert outcome.prompt.startswith("# Role")
    assert outcome.raw == f"Looks good. ACCEPT\n\n[{VERDICT_QUESTION}]\n\n{second}"
    assert "Looks good." in outcome.text, "the doer reads the first answer too"


def test_unclear_verdict_says_that_the_checker_gave_none(ask) -> None:
    outcome, _ = ask(["It is too early to ACCEPT.", "Too early."])
    assert outcome.text == (
        "Checker agent 'x' gave no verdict: its answer does not end with a line that is ACCEPT,"
        " RETRY or TERMINATE. The answer was:\n\nIt is too early to ACCEPT."
    )
    assert outcome.raw.startswith("It is too early to ACCEPT.")


def test_clear_agent_is_asked_once(ask) -> None:
    outcome, asked = ask(["All criteria are met.\n\nACCEPT"])
    assert (outcome.verdict, outcome.decided_by, len(asked)) == ("accept", "line", 1)


def test_empty_answer_is_not_asked_about(ask) -> None:
    outcome, asked = ask([""])
    assert (outcome.verdict, outcome.decided_by, len(asked)) == ("retry", "empty", 1)
    assert outcome.text == "Checker agent 'x' produced no output"


REMEMBERS = {
    "output": "json",
    "answer": "said",
    "thread": "id",
    "resume_args": ("--resume", "{thread}"),
    "checker_args": ("--read-only",),
    "usage": UsagePaths(cost_usd=("cost",), output_tokens=("out",)),
}
AS_JSON = """
print(json.dumps({"said": answer, "id": f"t{len(asked)}", "cost": 0.25, "out": 10}))
"""


def test_further_question_continues_the_conversation_and_its_cost_counts(ask) -> None:
    outcome, asked = ask(["Hm.", "ACCEPT"], code=AS_JSON, agent=REMEMBERS)
    assert outcome.verdict == "accept"
    assert asked[0][1:] == ["--read-only"]
    assert asked[1] == [VERDICT_QUESTION, "--read-only", "--resume", "t0"]
    assert outcome.usage == Usage(cost_usd=0.5, output_tokens=20)
    assert outcome.thread is None, "a checker begins each iteration anew"


def test_usage_of_a_conversation_is_counted_once(ask) -> None:
    usage = UsagePaths(of="conversation", output_tokens=("out",))
    code = 'print(json.dumps({"said": answer, "id": "t", "out": 10 * (1 + len(asked))}))'
    outcome, _ = ask(["Hm.", "ACCEPT"], code=code, agent=REMEMBERS | {"usage": usage})
    assert outcome.usage == Usage(output_tokens=20)


def test_retried_check_does_not_repeat_its_error_in_the_further_question(ask) -> None:
    _, asked = ask(["Hm.", "ACCEPT"], code=AS_JSON, agent=REMEMBERS, failure="it broke")
    assert asked[0][0].endswith("Its error was: it broke\n")
    assert asked[1][0] == VERDICT_QUESTION


def test_both_questions_share_the_time_limit(ask) -> None:
    slow = "print(answer, flush=True); __import__('time').sleep(60 * len(asked))"
    checker = {"prompt": "Is it good?", "agent": "x", "timeout_s": 2}
    outcome, asked = ask(["Hm.", "ACCEPT"], code=slow, inputs=checking(checker))
    assert (outcome.verdict, outcome.decided_by, len(asked)) == ("retry", "none", 2)
    assert "timed out" in outcome.raw


def test_failed_further_question_leaves_the_answer_unclear(ask) -> None:
    outcome, _ = ask(["Hm."])  # the second call finds no answer and fails
    assert (outcome.word, outcome.verdict, outcome.decided_by) == ("succeeded", "retry", "none")
    assert "exited with code 1" in outcome.raw


def test_check_that_is_cancelled_during_the_further_question_gives_no_verdict(
    ask, tmp_path
) -> None:
    cancel = threading.Event()

    def end_second() -> None:
        from tests.waiting import wait_until

        wait_until(lambda: (tmp_path / "work" / "second").exists(), timeout=20)
        cancel.set()

    waits = "open('second', 'w') if asked else None; __import__('time').sleep(60 * len(asked))"
    watcher = threading.Thread(target=end_second)
    watcher.start()
    outcome, _ = ask(["Hm.", "ACCEPT"], code=f"print(answer, flush=True); {waits}", cancel=cancel)
    watcher.join(20)
    assert (outcome.word, code_of(outcome)) == ("failed", ReasonCode.CANCELLED)


def test_long_answer_is_read_from_its_end_before_it_is_cut(ask) -> None:
    code = "print('```\\n' + 'a line of code\\n' * 7000 + '```\\n' + answer)"
    outcome, asked = ask(["ACCEPT"], code=code)
    assert (outcome.verdict, len(asked), len(outcome.text) <= 64_000) == ("accept", 1, True)
    hidden = "print('x\\n' * 20_000 + '```\\n' + 'a line of code\\n' * 7000 + answer)"
    outcome, _ = ask(["ACCEPT", "Hm.", "Hm."], code=hidden)
    assert outcome.decided_by == "none", "the verdict is in a code block"


def test_criteria_of_a_rubric_are_asked_about_once_more(ask, tmp_path) -> None:
    (tmp_path / "work" / "R.md").write_text("## Gates\n- `true`\n## Criteria\nIt is short.\n")
    rubric = checking({"rubric": "R.md", "agent": "x", "name": "r"})
    outcome, asked = ask(["Looks good. ACCEPT", "ACCEPT"], inputs=rubric)
    assert (outcome.verdict, outcome.decided_by, len(asked)) == ("accept", "rubric", 2)


@pytest.mark.parametrize(("gate", "decided_by"), [("true", "none"), ("false", "rubric")])
def test_unclear_criteria_leave_a_rubric_without_verdict(ask, tmp_path, gate, decided_by) -> None:
    (tmp_path / "work" / "R.md").write_text(f"## Gates\n- `{gate}`\n## Criteria\nIt is short.\n")
    rubric = checking({"rubric": "R.md", "agent": "x", "name": "r"})
    outcome, _ = ask(["Hm.", "Hm."], inputs=rubric)
    assert (outcome.verdict, outcome.decided_by) == ("retry", decided_by)


@pytest.mark.parametrize(
    ("returned", "verdict", "decided_by"),
    [
        ("'Looks good. ACCEPT'", "retry", "none"),
        ("'Fine.\\nACCEPT'", "accept", "line"),
        ("7", "retry", "none"),
    ],
)
def test_function_is_called_once(body, tmp_path, returned, verdict, decided_by) -> None:
    (tmp_path / "work" / "judging.py").write_text(
        f"def judge():\n    open('calls', 'a').write('x')\n    return {returned}\n"
    )
    outcome = body(Action.CHECK, checking({"callable": "judging:judge"}))
    assert (outcome.verdict, outcome.decided_by) == (verdict, decided_by)
    assert (tmp_path / "work" / "calls").read_text() == "x"


def test_agent_that_is_a_function_goes_on_with_its_thread(body, tmp_path) -> None:
    (tmp_path / "work" / "talk.py").write_text(
        "def answer(prompt, thread):\n"
        "    open('calls', 'a').write(f'{thread}: {prompt.splitlines()[-1]}\\n')\n"
        "    return {'text': 'ACCEPT' if thread else 'Hm.', 'thread': 't1'}\n"
    )
    agents = {"x": Agent(callable="talk:answer")}
    outcome = body(Action.CHECK, ASKED, agents=agents)
    assert outcome.verdict == "accept"
    calls = (tmp_path / "work" / "calls").read_text().splitlines()
    assert calls[1:] == [f"t1: {VERDICT_QUESTION}"]


def test_decision_is_not_asked_about_within_its_attempt(body, tmp_path) -> None:
    code = "open('calls', 'a').write('x'); print('{\"answer\": \"yes\"} I hope.')"
    outcome = body(Action.BREAK, {"question": "Is it?", "agent": "x"}, agents={"x": scripted(code)})
    assert (outcome.word, outcome.retryable) == ("failed", True)
    assert code_of(outcome) is ReasonCode.INVALID_ANSWER
    assert (tmp_path / "work" / "calls").read_text() == "x"
