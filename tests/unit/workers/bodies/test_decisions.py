"""Breaks and decisions: the answer that is parsed, and the raw answer beside it."""

from __future__ import annotations

import pytest

from app.core.program import Action
from leadhand.models.verdicts import ReasonCode
from tests.unit.workers.bodies.running import checking, code_of, scripted
from workers.registry.agent_entry import Agent


@pytest.mark.parametrize(("command", "verdict"), [("true", "accept"), ("false", "retry")])
def test_a_decision_ends_nothing_and_gives_no_reason(body, command, verdict) -> None:
    outcome = body(Action.DECIDE, {"command": command})
    assert (outcome.word, outcome.verdict, outcome.reason) == ("succeeded", verdict, None)


def test_a_script_that_takes_too_long_has_not_answered(body) -> None:
    line = """echo '{"answer": "yes"}'; sleep 60"""
    outcome = body(Action.BREAK, {"script": line}, timeout_s=0.3)
    assert (outcome.word, outcome.verdict) == ("failed", None)
    assert [link.code for link in outcome.reason.chain()] == [
        ReasonCode.INVALID_ANSWER, ReasonCode.TIMEOUT,
    ]  # fmt: skip


def answering(code: str) -> dict[str, Agent]:
    return {"oracle": scripted(code)}


ASKED = {"question": "Is it done?", "agent": "oracle"}


@pytest.mark.parametrize(
    ("said", "verdict", "text"),
    [
        ('{ "answer" : "yes" }', "accept", '{"answer":"yes"}'),
        ('I think:\n```json\n{"answer": "no"}\n```\n', "retry", '{"answer":"no"}'),
        ('{"answer": "no", "why": "?"}\n{"answer": "yes"}', "accept", '{"answer":"yes"}'),
        ('{"answer": "perhaps"}', None, "INVALID_SCHEMA"),
        ("yes, it is", None, "NO_VALID_CANDIDATE"),
        ("", None, "NO_VALID_CANDIDATE"),
    ],
)
def test_an_agent_decides_in_json(body, said, verdict, text) -> None:
    outcome = body(Action.BREAK, ASKED, agents=answering(f"print({said!r})"))
    assert outcome.verdict == verdict
    if verdict is not None:
        assert outcome.text == text
    else:
        assert (code_of(outcome), outcome.retryable) == (ReasonCode.INVALID_ANSWER, True)
        assert text in outcome.reason.text


TELLS_NOTHING = 'You asked me to answer {"answer": "yes"} or {"answer": "no"}, but I cannot tell'


@pytest.mark.parametrize(
    ("said", "verdict", "raw"),
    [
        (TELLS_NOTHING, None, TELLS_NOTHING),
        ('It is.\n{"answer": "yes"}', "accept", 'It is.\n{"answer": "yes"}'),
        ('{"answer":"yes"}', "accept", None),
    ],
)
def test_the_raw_answer_is_kept_beside_the_decision(body, said, verdict, raw) -> None:
    outcome = body(Action.BREAK, ASKED, agents=answering(f"print({said!r})"))
    assert (outcome.verdict, outcome.raw) == (verdict, raw)
    if verdict is None:
        assert code_of(outcome) is ReasonCode.INVALID_ANSWER
        assert "it does not end with a JSON object" in outcome.reason.text


def test_the_raw_answer_of_a_script_is_kept_beside_the_decision(body) -> None:
    outcome = body(Action.BREAK, {"script": """echo '{ "answer" : "no" }'"""})
    assert (outcome.text, outcome.raw) == ('{"answer":"no"}', '{ "answer" : "no" }\n')


def test_the_raw_answer_of_a_checker_is_kept_beside_its_feedback(body) -> None:
    said = 'I looked.\n{"verdict": "retry", "feedback": "mend it"}'
    checker = {"prompt": "Is it good?", "agent": "x"}
    agents = {"x": scripted(f"print({said!r})")}
    outcome = body(Action.CHECK, checking(checker), agents=agents)
    assert (outcome.verdict, outcome.text, outcome.raw) == ("retry", "mend it", said)
    inputs = {"rule": "all", "checks": [{"name": "a", "outcome": outcome.model_dump()}]}
    (check,) = body(Action.JUDGE, inputs).value["checks"]
    assert (check["feedback"], check["raw"]) == ("mend it", said)


def test_secrets_are_redacted_in_the_raw_answer(body, monkeypatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "of-nobody-0123456789")
    code = """import json, os
said = {"verdict": "retry", "feedback": "mend it", "key": os.environ["MY_API_KEY"]}
print(json.dumps(said))"""
    checker = {"prompt": "Is it good?", "agent": "x"}
    agents = {"x": scripted(code, env=("MY_API_KEY",))}
    outcome = body(Action.CHECK, checking(checker), agents=agents)
    assert outcome.text == "mend it"
    assert "redacted" in outcome.raw
    assert "0123456789" not in outcome.raw


def test_deciding_agent_gets_the_form_of_its_answer(body, tmp_path) -> None:
    echo = answering("import sys; open('asked', 'w').write(sys.argv[1]); print('?')")
    body(Action.BREAK, ASKED, agents=echo, failure="it said nothing")
    first, second, *rest = (tmp_path / "work" / "asked").read_text().splitlines()
    assert first.startswith('Answer with JSON only: {"answer": "yes"} or {"answer": "no"}')
    assert second == "Question: Is it done?"
    assert rest[-1].endswith("Its error was: it said nothing")


def test_an_agent_that_failed_to_decide_may_be_asked_again(body) -> None:
    outcome = body(Action.BREAK, ASKED, agents=answering("raise SystemExit(4)"))
    assert (outcome.word, outcome.retryable) == ("failed", True)
    gone = {"oracle": Agent(command=("/no/such/program", "{prompt}"))}
    outcome = body(Action.BREAK, ASKED, agents=gone)
    assert (outcome.word, outcome.retryable) == ("failed", False)


@pytest.mark.parametrize(
    ("inputs", "verdict", "code"),
    [
        ({"command": "true"}, "accept", ReasonCode.BREAK),
        ({"command": "false"}, "retry", None),
        ({"answer": "Yes", "break_on": "yes"}, "accept", ReasonCode.BREAK),
        ({"answer": "no", "break_on": "yes"}, "retry", None),
        ({"answer": "no", "break_on": "no"}, "accept", ReasonCode.BREAK),
        ({"answer": "perhaps"}, None, ReasonCode.INVALID_ANSWER),
        ({"command": "no-such-thing"}, None, ReasonCode.FAILED_STEP),
        ({"command": "kill -9 $$"}, None, ReasonCode.FAILED_STEP),
        ({"script": 'echo \'{"answer": "yes"}\''}, "accept", ReasonCode.BREAK),
        ({"script": 'echo \'{"answer": "no"}\''}, "retry", None),
        ({"script": 'echo \'{"answer":"no"}\'', "break_on": "no"}, "accept", ReasonCode.BREAK),
        ({"script": 'echo \'{"answer": "yes"}\'; false'}, None, ReasonCode.INVALID_ANSWER),
        ({"script": 'echo \'well: {"answer": "yes"}\''}, None, ReasonCode.INVALID_ANSWER),
        ({"script": 'echo \'{"answer":"no"}{"answer":"yes"}\''}, None, ReasonCode.INVALID_ANSWER),
        ({"script": "true"}, None, ReasonCode.INVALID_ANSWER),
        ({"script": "no-such-thing"}, None, ReasonCode.FAILED_STEP),
    ],
)
def test_a_break_accepts_where_the_loop_ends(body, inputs, verdict, code) -> None:
    outcome = body(Action.BREAK, inputs)
    assert (outcome.verdict, code_of(outcome)) == (verdict, code)
    assert outcome.word == ("failed" if verdict is None else "succeeded")
