"""Baselines of checkers: what a command said before the work, and what a check makes of it."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from app.compiler.merges import merge_program
from app.compiler.workflow import compile_loop, compile_workflow
from app.core.folders import Merge
from app.core.outcomes import Outcome
from app.core.program import Action
from leadhand.models.documents import LoopDocument, WorkflowDocument
from tests.unit.workers.bodies.running import checking
from tests.waiting import wait_until
from workers.folders.snapshots import Worktree


@pytest.fixture
def check(body, tmp_path: Path):
    def run(
        command: str, *, base: dict[str, object] | None = None, is_baseline: bool = False, **more
    ) -> Outcome:
        given = {**checking({"command": command}), "base": {"value": base}}
        given["is_baseline"] = is_baseline
        spill = tmp_path / "spill/check.1"
        outcome: Outcome = body(Action.CHECK, given, spill=spill, **more)
        return outcome

    return run


def tap(*ends: str) -> str:
    points = "".join(f"{end} {number}\\n" for number, end in enumerate(ends, 1))
    return f"printf '1..{len(ends)}\\n{points}'"


GREEN, RED, EMPTY = tap("ok", "ok"), tap("ok", "not ok"), "printf '1..0\\n'"


@pytest.mark.parametrize(
    ("command", "word", "fails_with_tests"),
    [
        (GREEN, "green", True),
        (f"{RED}; exit 1", "red", True),
        (RED, "green", False),
        (f"{GREEN}; exit 1", "red", False),
        (EMPTY, "red", None),
        ("true", "green", None),
        ("false", "red", None),
        ("exit 127", "unknown", None),
        ("exit 126", "unknown", None),
    ],
)
def test_baseline_has_no_verdict(check, command, word, fails_with_tests) -> None:
    outcome = check(command, is_baseline=True)
    assert (outcome.word, outcome.verdict) == ("succeeded", None)
    assert outcome.value["word"] == word
    assert outcome.value["fails_with_tests"] is fails_with_tests
    assert outcome.text.startswith(f"{word} before the work")


def test_baseline_that_takes_too_long_is_unknown(body) -> None:
    given = {**checking({"command": "sleep 30", "timeout_s": 0.3}), "is_baseline": True}
    assert body(Action.CHECK, given).value["word"] == "unknown"


def test_baseline_names_the_files_that_it_changed(check, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "work")], check=True)
    assert check("true", is_baseline=True).warning is None
    assert check("echo x > made.txt", is_baseline=True).warning == (
        "files changed while checks ran before the work, and now count as the folder's: made.txt"
    )

    (tmp_path / "work/kept.txt").write_text("x")
    outcome = check("echo y > kept.txt", is_baseline=True, own_top=tmp_path / "work")
    assert "before the work, and were put back: kept.txt" in outcome.warning
    assert (tmp_path / "work/kept.txt").read_text() == "x"


def counts(passed: int, failed: int = 0) -> dict[str, int]:
    return {"passed": passed, "failed": failed, "collected": passed + failed}


def test_accepting_check_says_how_it_was_before_the_work(check) -> None:
    green, red = check("echo yes", base={"word": "green"}), check("echo yes", base={"word": "red"})
    assert (green.baseline, red.baseline) == ("green", "red")
    assert green.text == (
        "It was green before the work, too: it cannot tell whether anything was done.\n\nyes"
    )
    assert red.text == "It was red before the work.\n\nyes"
    assert check("false", base={"word": "red"}).text == "Command exited with code 1"
    assert check("true", base={"word": "unknown"}).baseline == "unknown"
    assert check("true", base=None).baseline is None


def test_rubric_has_a_baseline_of_its_gates(body, tmp_path: Path) -> None:
    rubric = "## Gates\n- `test -f done`\n- `echo fine`\n\n## Criteria\n- It is good.\n"
    (tmp_path / "work/R.md").write_text(rubric)
    before = body(Action.CHECK, {**checking({"rubric": "R.md"}), "is_baseline": True})
    assert before.verdict is None
    assert before.text == "red before the work\n\n- `test -f done`: red\n- `echo fine`: green"
    (tmp_path / "work/R.md").write_text("## Gates\n- `echo fine`\n")
    base = {"value": before.value}
    after = body(Action.CHECK, {**checking({"rubric": "R.md"}), "base": base})
    assert (after.verdict, after.baseline) == ("accept", "red")
    assert after.text == "It was red before the work."
    missing = body(Action.CHECK, {**checking({"rubric": "N.md"}), "is_baseline": True})
    assert missing.value["word"] == "unknown"


def test_tests_that_the_baseline_had_must_come_again(check) -> None:
    base = {"word": "green", "counts": counts(2), "fails_with_tests": True}
    gone = check("true", base=base)
    assert (gone.verdict, gone.decided_by) == ("retry", "tests")
    assert "the output of its tests is missing" in gone.text
    named = check(GREEN, base={**base, "names": ["a", "b"]})
    assert (named.verdict, named.decided_by) == ("retry", "tests")
    assert "the report of its tests is missing" in named.text


def test_fewer_tests_than_before_are_a_warning(check) -> None:
    base = {"word": "red", "counts": counts(2, 1), "fails_with_tests": True}
    assert check(GREEN, base=base).warning == "1 of 3 tests are gone since before the work"
    assert check(tap("ok", "ok", "ok", "ok"), base=base).warning is None


def test_baseline_shows_whether_failing_tests_fail_the_command(check) -> None:
    assert check(RED).verdict == "accept", "nothing says that its exit code follows the tests"
    follows = {"word": "red", "counts": counts(1, 1), "fails_with_tests": True}
    assert check(RED, base=follows).verdict == "retry"
    inverted = {**follows, "fails_with_tests": False}
    assert check(f"make() {{ {RED}; }}; make", base=inverted).verdict == "accept"


def test_loops_have_a_baseline_of_each_command(check) -> None:
    loop = {"task": "t", "checkers": ["pytest -q", "agent: good?", "R.md"], "protected": ["tests"],
            "cwd": "/w"}  # fmt: skip
    program = compile_loop(LoopDocument.model_validate(loop))
    assert steps_of(program) == ["base.pytest", "base.R", "protect", "loop"]
    assert [node.needs for node in program.body] == [
        (), (), ("base.pytest", "base.R"), ("protect",),
    ]  # fmt: skip
    for other in ({**loop, "baseline": False, "protected": []}, {**loop, "max_iterations": 0}):
        assert steps_of(compile_loop(LoopDocument.model_validate(other))) == ["loop"]
    del loop["cwd"]
    phases = [{**loop, "name": name} for name in ("red", "a green one", "x" * 64)]
    found = compile_workflow(
        WorkflowDocument.model_validate({"name": "w", "cwd": "/w", "phases": phases})
    )
    assert steps_of(found)[:5] == [
        "base.red.pytest", "base.red.R", "protect.red", "red", "base.phase-2.pytest",
    ]  # fmt: skip
    assert [node.needs for node in found.body[4:8]] == [
        ("red",), ("red",), ("base.phase-2.pytest", "base.phase-2.R"), ("protect.phase-2",),
    ]  # fmt: skip
    assert max(map(len, steps_of(found))) <= 64


def test_merge_of_a_task_has_no_baseline() -> None:
    document = LoopDocument.model_validate({"task": "t", "checkers": ["pytest -q"], "cwd": "/w"})
    names = {"branch": "leadhand/a", "target": "refs/heads/main"}
    merge = Merge(plan="ab12cd34", task="a", run=1, origin="/w", **names)
    steps = [path for path, _ in merge_program(document, merge).walk()]
    assert [path.rpartition("/")[2] for path in steps if "check" in path] == ["check.pytest"]
    assert not [path for path in steps if "base." in path]


def steps_of(program) -> list[str]:
    return [node.id for node in program.body]


@pytest.fixture
def base(body, tmp_path: Path):
    """Runs a command before the work of a repository with one file."""
    work, spill = tmp_path / "work", tmp_path / "spill"
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    (work / "kept.txt").write_text("x")

    def run(command: str, name: str = "a", **more) -> Outcome:
        checker = {"command": command, "name": name}
        given = {"cwd": work, "address": f"base.{name}", "spill": spill / name, **more}
        outcome: Outcome = body(Action.CHECK, {**checking(checker), "is_baseline": True}, **given)
        return outcome

    return run


def until(name: str) -> str:
    return f"for i in $(seq 1000); do test -e {name} && break; sleep 0.02; done"


def test_folder_is_put_back_after_the_last_of_the_checks_before_the_work(
    base, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(
            base, f"touch b; {until('../go')}; test -e b && test -e a", "b", own_top=work
        )
        quick = pool.submit(base, f"touch a; {until('b')}; echo y > kept.txt", "a", own_top=work)
        assert quick.result().warning is None
        (tmp_path / "go").touch()
    assert slow.result().value["word"] == "green"
    assert slow.result().warning == (
        "files changed while checks ran before the work, and were put back: a, b, kept.txt"
    )
    assert sorted(path.name for path in work.iterdir()) == [".git", "kept.txt"]
    assert (work / "kept.txt").read_text() == "x"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ("green", "x")),
        ({"after_stop": True}, ("red", "y\n")),
        ({"session": "cd34ef56"}, ("red", "y\n")),  # it is another one's, also at its address
    ],
)
def test_attempt_after_one_that_was_killed_finds_the_folder_as_that_did(
    base, tmp_path: Path, more: dict[str, object], expected: tuple[str, str]
) -> None:
    work = tmp_path / "work"
    command = "test -e ../again || { echo y > kept.txt; touch ../ready; sleep 30; }"
    killed = get_context("fork").Process(target=base, args=(command,), kwargs={"own_top": work})
    killed.start()
    wait_until((tmp_path / "ready").exists, timeout=20)
    killed.kill()
    killed.join()
    (tmp_path / "again").touch()
    outcome = base("test $(cat kept.txt) = x", own_top=work, **more)
    assert (outcome.value["word"], (work / "kept.txt").read_text()) == expected


def test_command_does_not_run_again_before_the_work_in_the_same_state(base, tmp_path: Path) -> None:
    counting = "echo run >> ../runs; test -e done"
    for name in ("one", "two"):
        assert base(counting, name).value["word"] == "red"
    assert (tmp_path / "runs").read_text() == "run\n"
    assert "as it ran in this state already" in base(counting, "three").text
    base(counting, "four", worker_environment={"LANG": "C", "PATH": "/usr/bin:/bin"})
    (tmp_path / "work/done").touch()
    assert base(counting, "five").value["word"] == "green"
    assert (tmp_path / "runs").read_text() == "run\n" * 3


def test_check_of_a_phase_is_the_baseline_of_the_next_in_the_same_state(
    base, body, tmp_path: Path
) -> None:
    counting = "echo run >> ../runs; test -e kept.txt"
    state = Worktree(tmp_path / "work", tmp_path / "shelf").snapshot()
    given = {**checking({"command": counting, "name": "a"}), "keeps": True}
    body(Action.CHECK, given, spill=tmp_path / "spill/check", recorded_work=lambda: state)
    assert base(counting).value["word"] == "green"
    assert (tmp_path / "runs").read_text() == "run\n"


def test_gates_are_kept_one_by_one(body, base, tmp_path: Path) -> None:
    (tmp_path / "work/R.md").write_text("## Gates\n- `echo run >> ../runs`\n- `test -e done`\n")
    given = {**checking({"rubric": "R.md"}), "is_baseline": True}
    for name in ("one", "two"):
        found = body(Action.CHECK, given, address=f"base.{name}", spill=tmp_path / "spill" / name)
        assert found.text.endswith("\n\n- `echo run >> ../runs`: green\n- `test -e done`: red")
    base("echo run >> ../runs")
    assert (tmp_path / "runs").read_text() == "run\n"


def test_phases_keep_what_the_next_one_runs_before_its_work() -> None:
    phases = [
        {"name": "a", "task": "t", "checkers": ["pytest -q", "R.md", "ruff"]},
        {"name": "b", "task": "t", "checkers": ["pytest -q", "R.md"]},
    ]
    found = compile_workflow(WorkflowDocument.model_validate({"name": "w", "phases": phases}))
    keeping = [path for path, node in found.walk() if getattr(node, "inputs", {}).get("keeps")]
    assert keeping == ["a/check.pytest", "a/check.R"]
