"""Rubrics: parsing a file, and the verdict of its gates and an agent, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.outcomes import Gate, Verdict
from app.core.program import Action
from app.security.command_permission import free_commands
from leadhand.models.documents import Checker, LoopDocument
from tests.unit.workers.bodies.running import body, checking, scripted  # noqa: F401 - body is a fixture
from workers.checkers.combine import combine
from workers.checkers.rubric import Sentence, parse_rubric, sentence
from workers.registry.agent_entry import Agent
from workers.task import Check

FILE = """# Slugs for titles

Said before any section.

## GATES:

- `pytest -q` all of them,
  and soon
* [x] ``echo `date` ``
1. `true`
- `true`

---

### Criteria

- No special case for one test.

#### Tests

```sh
# Install
```

## Nice to Have

Short names.

## notes
Ask Ann.
"""


def test_a_file_is_read_section_by_section() -> None:
    rubric = parse_rubric(FILE)
    assert rubric.title == "Slugs for titles"
    assert rubric.gates == ("pytest -q", "echo `date`", "true")
    criteria = "- No special case for one test.\n\n#### Tests\n\n```sh\n# Install\n```"
    assert rubric.criteria == criteria
    assert (rubric.nice, rubric.notes) == ("Short names.", "Said before any section.\n\nAsk Ann.")
    assert rubric.hash == parse_rubric(FILE).hash != parse_rubric(FILE + " ").hash


@pytest.mark.parametrize(
    ("text", "gates", "criteria"),
    [
        ("# R\n## Acceptance criteria\n- good\n## Hard Gates\n- `g`", ("g",), "- good"),
        ("\ufeff# Gates\n- `g`", ("g",), ""),
        ("# R\n## Gates\n", (), ""),
        ("\n", (), ""),
    ],
)
def test_a_rubric_may_be_written_a_little_differently(
    text: str, gates: tuple[str, ...], criteria: str
) -> None:
    rubric = parse_rubric(text)
    assert (rubric.gates, rubric.criteria) == (gates, criteria)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# R\n\n- must be good", "it has no section"),
        ("# R\n## Checks\n- `false`", "line 2 is a heading of no section, '## Checks'"),
        ("## Gates\n- `true`\n## More\n- `false`", "line 3 is a heading of no section"),
        ("## Gates\n### Slow\n- `true`", "line 2 is a heading of no section"),
        ("## Gates\n- run false, it must pass", "line 2 is not a gate"),
        ("## Gates\n- see `ls` later", "line 2 is not a gate"),
        ("## Gates\n- `false", "line 2 is not a gate"),
        ("## Gates\n- `true`\n\n  make", "line 4 is not a gate"),
        ("## Gates\n```sh\nfalse\n```", "line 2 is not a gate"),
        ("## Notes\n```sh\nx\n## Gates\n- `false`", "line 2 opens a fence"),
        ("## Notes\nx\n\nGates\n-----\n- `false`", "line 4 reads like a heading, 'Gates'"),
        ("## Notes\nx\n\n**Hard Gates:**\n- `false`", "line 4 reads like a heading"),
        ("## Notes\nx\n##Gates\n- `false`", "line 3 reads like a heading, '##Gates'"),
    ],
)
def test_what_no_section_takes_up_is_refused(body, work, text: str, says: str) -> None:  # noqa: F811
    outcome = judge(body, work, text)
    assert (outcome.verdict, outcome.decided_by) == ("terminate", "not_started")
    assert outcome.text.startswith(f"rubric 'RUBRIC.md' cannot be read: {says}")
    assert "; " in outcome.text


def test_a_rubric_that_is_too_long_is_refused(body, work) -> None:  # noqa: F811
    outcome = judge(body, work, "## Notes\n" + "x" * 256 * 1024 + "\n## Gates\n- `false`")
    assert outcome.verdict == "terminate"
    assert outcome.text.endswith("it is longer than 262144 bytes; cut it")


@pytest.mark.parametrize(
    ("text", "failed", "agent", "verdict"),
    [
        ("", False, None, "accept"),
        ("## Gates\n- `g`", False, None, "accept"),
        ("## Gates\n- `g`", True, None, "retry"),
        ("## Gates\n- `g`\n## Criteria\nx", False, "accept", "accept"),
        ("## Gates\n- `g`\n## Criteria\nx", False, "retry", "retry"),
        ("## Gates\n- `g`\n## Criteria\nx", True, "accept", "retry"),
        ("## Gates\n- `g`\n## Criteria\nx", True, "terminate", "terminate"),
        ("## Nice to have\nx", False, "retry", "accept"),
        ("## Nice to have\nx", False, "terminate", "terminate"),
        ("## Criteria\nx", False, None, "retry"),
    ],
)
def test_what_gates_and_criteria_come_to(
    text: str, failed: bool, agent: Verdict | None, verdict: Verdict
) -> None:
    rubric = parse_rubric(text)
    gates = [Gate(gate=gate, passed=not failed, said="no") for gate in rubric.gates]
    told = sentence(rubric, gates, Sentence(agent, "so it is") if agent else None)
    assert told.verdict == verdict
    assert ("Gate `g` failed: no" in told.feedback) == failed
    assert ("so it is" in told.feedback) == (agent is not None)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


def judge(body, work: Path, text: str, *, agents: dict[str, Agent] | None = None, **more):  # noqa: F811
    (work / "RUBRIC.md").write_text(text)
    checker = {"rubric": "RUBRIC.md", "name": "rubric", "agent": "judge" if agents else None}
    return body(Action.CHECK, {**checking(checker), **more}, agents=agents)


def test_all_gates_run_whatever_the_others_say(body, work) -> None:  # noqa: F811
    text = "## Gates\n- `echo one >> ran; echo no; false`\n- `echo two >> ran`\n- `no-such-thing`"
    outcome = judge(body, work, text)
    assert (work / "ran").read_text() == "one\ntwo\n"
    assert (outcome.verdict, outcome.decided_by) == ("retry", "rubric")
    assert "failed: exited with code 1: no" in outcome.text
    assert "Gate `no-such-thing` failed: " in outcome.text
    assert "echo two" not in outcome.text
    assert [gate.passed for gate in outcome.ruling.gates] == [False, True, False]


def test_an_agent_judges_the_criteria_and_hears_how_the_gates_went(body, work) -> None:  # noqa: F811
    agent = scripted("import sys; open('asked', 'w').write(sys.argv[1]); print('Fine.\\nACCEPT')")
    outcome = judge(body, work, FILE.replace("pytest -q", "false"), agents={"judge": agent})
    asked = (work / "asked").read_text()
    for said in (
        "No special case",
        "Short names.",
        "Ask Ann.",
        "`false`: failed",
        "`true`: passed",
    ):
        assert said in asked
    assert outcome.verdict == "retry"
    assert outcome.text.endswith("Fine.\nACCEPT")


def test_gates_alone_ask_no_agent(body, work) -> None:  # noqa: F811
    outcome = judge(body, work, "## Gates\n- `true`")
    assert (outcome.verdict, outcome.text) == ("accept", "")


def test_the_file_is_read_anew_each_time(body, work) -> None:  # noqa: F811
    first = judge(body, work, "## Gates\n- `false`")
    second = judge(body, work, "## Gates\n- `true`")
    assert (first.verdict, second.verdict) == ("retry", "accept")
    assert first.ruling.rubric != second.ruling.rubric


def test_a_rubric_that_is_not_there_ends_the_loop(body) -> None:  # noqa: F811
    outcome = body(Action.CHECK, checking({"rubric": "NONE.md"}))
    assert (outcome.verdict, outcome.decided_by) == ("terminate", "not_started")
    assert outcome.text == "rubric 'NONE.md' cannot be read: No such file or directory"


def test_every_gate_runs_again_in_each_iteration(body, work) -> None:  # noqa: F811
    """No digest sees ignored files, so a gate that passed before may fail now."""
    text = "## Gates\n- `test ! -f build/bad`\n- `test -f build/good`"
    assert judge(body, work, text).verdict == "retry"
    (work / "build").mkdir()
    (work / "build" / "bad").touch()
    (work / "build" / "good").touch()
    outcome = judge(body, work, text)
    assert [gate.passed for gate in outcome.ruling.gates] == [False, True]
    assert outcome.verdict == "retry"
    judged = combine("all", [Check(name="rubric", outcome=outcome)]).checks[0]
    assert judged.rubric == outcome.ruling.rubric


def test_gate_that_hides_its_exit_code_is_warned_of_in_the_first_iteration(body, work) -> None:  # noqa: F811
    (work / "RUBRIC.md").write_text("## Gates\n- `false | tee log`\n- `true`")
    outcome = body(Action.CHECK, checking({"rubric": "RUBRIC.md"}), iteration=1)
    assert (outcome.verdict, "is that of tee, which never fails" in outcome.warning) == (
        "accept", True,
    )  # fmt: skip
    assert body(Action.CHECK, checking({"rubric": "RUBRIC.md"}), iteration=2).warning is None


def test_a_slow_gate_has_failed(body, work) -> None:  # noqa: F811
    (work / "RUBRIC.md").write_text("## Gates\n- `sleep 60`")
    outcome = body(Action.CHECK, checking({"rubric": "RUBRIC.md", "timeout_s": 0.3}))
    assert outcome.text == "Gate `sleep 60` timed out: this is no verdict on the work."


def test_a_rubric_is_written_as_text_and_needs_the_right_to_run_commands() -> None:
    assert Checker.model_validate("rubric: docs/R.md").rubric == "docs/R.md"
    given = {"task": "t", "checker": "rubric: R.md", "doer": {"agent": "a"}}
    document = LoopDocument.model_validate(given)
    assert list(free_commands(document)) == ["checkers.0.rubric"]
    with pytest.raises(
        ValueError, match="give exactly one of command, prompt, callable, tool, rubric"
    ):
        Checker.model_validate({"rubric": "R.md", "command": "true"})
