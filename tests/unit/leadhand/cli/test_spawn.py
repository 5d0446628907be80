"""leadhand spawn: what it sends, prints and returns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.scripted_api import Script
from tests.unit.leadhand.cli.conftest import HISTORY, REFUSED, Leadhand


def test_spawn_submits_its_options(script: Script, leadhand: Leadhand, elsewhere: Path) -> None:
    given = "--doer doer --max-iterations 5 --rule 1 --model m --checker-model c --label l"
    leadhand("spawn", "t", "--checker", "a", "--checker", "agent: b", *given.split(), "--json")
    [document] = script.submitted
    assert document["kind"] == "loop"
    assert [c["command"] or c["prompt"] for c in document["checkers"]] == ["a", "b"]
    assert (document["doer"]["command"], document["rule"]) == ("doer", 1)
    assert (document["max_iterations"], document["label"]) == (5, "l")
    assert (document["model"], document["checker_model"]) == ("m", "c")
    assert document["cwd"] == str(elsewhere)


def test_task_may_begin_as_an_item_of_a_list(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    text = "- a task\n- another one"
    for words in (["spawn", text, "--checker", "a"], ["spawn", "--checker", "a", text]):
        code, _, err = leadhand(*words, "--label", "- a label", "--json")
        assert code == 0, err
    assert [one["task"] for one in script.submitted] == [text, text]
    assert [one["label"] for one in script.submitted] == ["- a label"] * 2
    code, _, err = leadhand("spawn", "-x", "--checker", "a")
    assert (code, "No such option" in err) == (1, True)


def test_spawn_reads_checkers_as_they_are_written(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "My Rubric.md").write_text("## Criteria\nNo hacks.")
    written = (
        *("lint: ruff check .", "agent(critic): Good?", "look: agent(critic): Fine?", "RUBRIC.md"),
        *("My Rubric.md", "CI=1 make test", "http_proxy=x make", "cat notes.md", "lint=ruff x"),
        'out=$(git status --porcelain); test -z "$out"',
    )
    checkers = [part for one in written for part in ("--checker", one)]
    code, _, err = leadhand("spawn", "t", *checkers, "--json")
    assert code == 0, err
    [document] = script.submitted
    fields = ("name", "command", "prompt", "agent", "rubric")
    assert [{f: c[f] for f in fields if c[f] is not None} for c in document["checkers"]] == [
        {"name": "lint", "command": "ruff check ."},
        {"prompt": "Good?", "agent": "critic"},
        {"name": "look", "prompt": "Fine?", "agent": "critic"},
        {"rubric": "RUBRIC.md"},
        {"rubric": "My Rubric.md"},
        {"command": "CI=1 make test"},
        {"command": "http_proxy=x make"},
        {"command": "cat notes.md"},
        {"command": "lint=ruff x"},
        {"command": 'out=$(git status --porcelain); test -z "$out"'},
    ]


def test_spawn_finds_a_rubric_beside_itself_where_the_folder_is_another(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "sub").mkdir()
    (elsewhere / "RUBRIC.md").write_text("## Criteria\nNo hacks.")
    leadhand("spawn", "t", "--checker", "good: RUBRIC.md", "--cwd", "sub", "--json")
    [document] = script.submitted
    [checker] = document["checkers"]
    assert (checker["name"], checker["rubric"]) == ("good", str(elsewhere / "RUBRIC.md"))


def test_spawn_submits_timeouts_attempts_and_conversation(
    script: Script, leadhand: Leadhand
) -> None:
    given = "--doer-timeout 60 --doer-attempts 3 --checker-timeout 5 --conversation continue"
    leadhand("spawn", "t", "--checker", "a", "--agent", "x", *given.split(), "--json")
    [document] = script.submitted
    assert (document["timeout_s"], document["doer_attempts"]) == (60, 3)
    assert (document["checker_timeout_s"], document["checkers"][0]["timeout_s"]) == (5, 5)
    assert document["conversation"] == "continue"


def test_a_task_comes_from_standard_input_or_a_file(
    script: Script, leadhand: Leadhand, elsewhere: Path, monkeypatch
) -> None:
    (elsewhere / "task.md").write_text("# From a file\n")
    (elsewhere / "empty.md").write_text(" \n")
    (elsewhere / "binary.md").write_bytes(b"\xff\xfe\x00")
    with (elsewhere / "task.md").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert leadhand("spawn", "-", "--checker", "true")[0] == 0
    assert leadhand("spawn", "--task-file", "task.md", "--checker", "true")[0] == 0
    assert [document["task"] for document in script.submitted] == ["# From a file"] * 2
    code, _, err = leadhand("spawn", "--task-file", "empty.md", "--checker", "true")
    assert (code, err) == (1, "leadhand: empty.md is empty; write the task\n")
    code, _, err = leadhand("spawn", "--task-file", "binary.md", "--checker", "true")
    assert (code, "binary.md is not UTF-8 text" in err) == (1, True)


def test_spawn_prints_progress_lines(script: Script, leadhand: Leadhand) -> None:
    script.events = [
        ("loop.opened", "loop~1", {"iteration": 1, "max": 3}),
        ("step.settled", "loop~1[1]/check.ruff", {"verdict": "retry", "text": "\x1b[31mE501"}),
    ]
    code, out, _ = leadhand("spawn", "t", "--checker", "ruff check")
    assert code == 0
    assert "loop 1/3 ruff: retry: E501" in out
    assert "session 00000000: accept after 1 iteration" in out
    assert out.replace("\n", "").isprintable()


def test_a_detached_spawn_prints_the_id_and_leaves(script: Script, leadhand: Leadhand) -> None:
    script.ends = False
    assert leadhand("spawn", "t", "--checker", "a", "--detach")[:2] == (0, "00000000\n")
    out = leadhand("spawn", "t", "--checker", "a", "--detach", "--json")[1]
    assert json.loads(out)["session_id"] == "00000001"


@pytest.mark.parametrize(
    ("status", "verdict", "code"),
    [
        ("completed", "accept", 0),
        ("failed", "max_iterations", 3),
        ("failed", "terminate", 3),
        ("exited", "exit", 2),
        ("stopped", None, 2),
        ("aborted", None, 2),
    ],
)
def test_the_exit_code_says_how_it_ended(
    script: Script, leadhand: Leadhand, status: str, verdict: str | None, code: int
) -> None:
    script.result = {"status": status, "verdict": verdict}
    assert leadhand("spawn", "t", "--checker", "a")[0] == code
    assert leadhand("watch", "00000000")[0] == code
    assert leadhand("wait", "00000000")[0] == code


def test_spawn_prints_exactly_one_object(script: Script, leadhand: Leadhand) -> None:
    script.result = {"iterations": 2, "history": [HISTORY]}
    code, out, _ = leadhand("spawn", "make it pass", "--checker", "pytest -q", "--json")
    result = json.loads(out)
    assert code == 0
    assert {
        name: result[name] for name in ("verdict", "iterations", "result_text", "exit_reason")
    } == {"verdict": "accept", "iterations": 2, "result_text": "the work", "exit_reason": ""}
    assert result["history"][0]["checks"] == [REFUSED]
    assert result["session_id"] == "00000000"


@pytest.mark.parametrize("way", ["--json", "--detach"])
def test_spawn_prints_the_warnings_of_the_submit(
    script: Script, leadhand: Leadhand, way: str
) -> None:
    script.about = {"warnings": ["the exit code of 'false | tee log' is that of tee"]}
    code, _, err = leadhand("spawn", "t", "--checker", "false | tee log", way)
    assert code == 0
    assert err.startswith("leadhand: warning: the exit code of 'false | tee log' is that of tee\n")
