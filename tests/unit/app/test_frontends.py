"""Documents become programs: what each step is given, and under which names."""

from __future__ import annotations

from typing import Any

import pytest

from app.compiler import compile_document
from app.core.program import Loop, Step
from leadhand.models.documents import LoopDocument, WorkflowDocument


def steps(**fields: object) -> dict[str, Step]:
    document = LoopDocument.model_validate({"task": "t", "checkers": ["true"], **fields})
    *_, loop = compile_document(document).body
    assert isinstance(loop, Loop)
    return {step.id: step for step in loop.body if isinstance(step, Step)}


def checker_model(step: Step) -> object:
    checker = step.inputs["checker"]
    assert isinstance(checker, dict)
    return checker.get("model")


def test_a_checkers_model_is_its_own_then_the_loops_then_the_doers() -> None:
    own = {"prompt": "p", "model": "own"}
    assert (
        checker_model(steps(checkers=[own], model="d", checker_model="c")["check.agent"]) == "own"
    )
    plain = {"prompt": "p"}
    assert (
        checker_model(steps(checkers=[plain], model="d", checker_model="c")["check.agent"]) == "c"
    )
    assert checker_model(steps(checkers=[plain], model="d")["check.agent"]) == "d"
    other = {"prompt": "p", "agent": "other"}
    assert checker_model(steps(checkers=[other], model="d")["check.other"]) is None
    assert steps(checkers=[other], model="d")["check.other"].inputs["doer_model"] == "d"


def test_limits_are_asked_for_by_agent_model_and_key() -> None:
    given = steps(doer={"agent": "x"}, model="m", concurrency_key="k")
    assert given["do"].limits == ("agent:x", "model:m", "key:k")


def test_checkers_of_one_name_are_numbered() -> None:
    given = steps(checkers=["pytest a", "pytest b", "/usr/bin/env x"])
    assert [name for name in given if name.startswith("check.")] == [
        "check.pytest",
        "check.pytest-2",
        "check.x",
    ]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("pytest -q", "pytest"),
        ("cd sub && pytest -q", "pytest"),
        ("cd sub; env A=1 ruff check .", "ruff"),
        ("A=1 B=2 make test", "make"),
        ("sudo -u bob make test", "make"),
        ("python3 -m pytest -q", "pytest"),
        ("python3.11 checks/tidy.py a.py", "tidy"),
        ("/usr/bin/python3 -P checks/tidy.py", "tidy"),
        ("bash -c 'cd x && ruff check .'", "ruff"),
        ("bash ./check.sh", "check"),
        ("uv run pytest", "pytest"),
        ("timeout 60 pytest", "pytest"),
        ("test -f 'a b' && ruff check", "test"),
        ("python3 -c 'print(1)'", "python3"),
        ("env", "env"),
        ("echo 'unclosed", "echo"),
    ],
)
def test_a_checker_is_named_by_the_program_that_judges(command: str, name: str) -> None:
    (found,) = [one for one in steps(checkers=[command]) if one.startswith("check.")]
    assert found == f"check.{name}"


def test_names_of_checkers_are_unique() -> None:
    given = steps(checkers=["lint", {"name": "lint", "command": "ruff"}, "lint-1", "lint"])
    assert [one for one in given if one.startswith("check.")] == [
        *("check.lint-1", "check.lint", "check.lint-1-3", "check.lint-4"),
    ]
    with pytest.raises(ValueError, match="2 are named 'lint'; names must differ"):
        steps(checkers=[{"name": "lint", "command": "a"}, {"name": "lint", "command": "b"}])


def test_a_checker_as_text_names_its_agent_or_is_a_rubric() -> None:
    given = steps(checkers=["agent(critic): Is it clear?", "docs/RUBRIC.md", "cat RUBRIC.md"])
    found: list[Any] = [one.inputs["checker"] for id_, one in given.items() if "check." in id_]
    assert [(c["agent"], c["prompt"]) for c in found[:1]] == [("critic", "Is it clear?")]
    assert found[1]["rubric"] == "docs/RUBRIC.md"
    assert found[2]["command"] == "cat RUBRIC.md"


def test_a_checker_s_own_timeout_goes_before_the_loop_s() -> None:
    own = {"name": "own", "command": "true", "timeout_s": 300.0}
    given = steps(checkers=[own, "pytest", "agent: good?"], checker_timeout_s=20)
    assert [given[f"check.{name}"].timeout_s for name in ("own", "pytest", "agent")] == [
        300,
        20,
        20,
    ]
    checker: Any = given["check.pytest"].inputs["checker"]
    assert checker["timeout_s"] == 20
    assert steps(checkers=["pytest"])["check.pytest"].timeout_s == 300


def test_a_doer_has_its_attempts_and_its_timeout() -> None:
    given = steps(doer={"agent": "x"}, doer_attempts=3, timeout_s=5)
    assert (given["do"].retry.retries, given["do"].timeout_s) == (2, 5)
    assert steps()["do"].retry.retries == 0


def test_a_loop_continues_its_conversation_where_that_is_asked_for() -> None:
    given = steps(doer={"agent": "x"}, conversation="continue")["do"]
    assert given.conversation == "x|loop"
    assert given.inputs["continues"] is True
    assert steps(doer={"agent": "x"})["do"].conversation is None
    assert steps(conversation="continue")["do"].conversation == "default|loop"
    phases = [
        {"name": "a | <b>", "task": "t", "checkers": ["true"], "conversation": "continue"},
    ]
    document = WorkflowDocument.model_validate(
        {"name": "w", "phases": phases, "doer": {"agent": "y"}}
    )
    *_, loop = compile_document(document).body
    assert isinstance(loop, Loop)
    assert isinstance(loop.body[0], Step)
    assert loop.body[0].conversation == "y|a-b>"


@pytest.mark.parametrize("doer", [{"command": "true"}, {"callable": "a:b"}])
def test_only_an_agent_continues_a_conversation(doer: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="conversation is 'continue', but the doer is a "):
        steps(doer=doer, conversation="continue")
    phase = {"name": "a", "task": "t", "checkers": ["true"], "conversation": "continue"}
    with pytest.raises(ValueError, match="phase 'a': conversation is 'continue'"):
        WorkflowDocument.model_validate({"name": "w", "phases": [phase], "doer": doer})


def test_a_task_that_looks_like_a_reference_is_none() -> None:
    assert steps(task="${previous.do.text}")["do"].inputs["task"] == "$${previous.do.text}"


def test_phases_with_names_that_are_no_ids_are_numbered_and_keep_their_label() -> None:
    phases = [
        {"name": name, "task": "t", "checkers": ["true"]}
        for name in ("red", "write tests!", "phase-1", "item")
    ]
    document = WorkflowDocument.model_validate({"name": "w", "phases": phases})
    loops = [node for node in compile_document(document).body if isinstance(node, Loop)]
    nodes = [(node.id, node.label) for node in loops]
    assert nodes == [
        ("red", "red"),
        ("phase-2", "write tests!"),
        ("phase-3", "phase-1"),
        ("phase-4", "item"),
    ]


def test_a_phase_is_shown_the_one_before_it_unless_it_says_otherwise() -> None:
    phases: list[dict[str, object]] = [
        {"name": "a", "task": "t", "checkers": ["true"]},
        {"name": "b", "task": "t", "checkers": ["true"]},
        {"name": "c", "task": "t", "checkers": ["true"], "pipe": ["a"]},
    ]
    document = WorkflowDocument.model_validate({"name": "w", "phases": phases})
    shown = []
    for loop in (node for node in compile_document(document).body if isinstance(node, Loop)):
        assert isinstance(loop, Loop)
        do = loop.body[0]
        assert isinstance(do, Step)
        prior = do.inputs["prior"]
        assert isinstance(prior, list)
        shown.append([p["name"] for p in prior if isinstance(p, dict)])
    assert shown == [[], ["a"], ["a"]]


def test_checkers_and_the_next_doer_get_the_number_of_failed_tool_calls() -> None:
    found = steps(doer={"agent": "claude"})
    check = next(step for name, step in found.items() if name.startswith("check."))
    assert check.inputs["tools_failed"] == "${do.tools_failed}"
    previous = found["do"].inputs["previous"]
    assert isinstance(previous, dict)
    assert previous["tools_failed"] == "${previous.do.tools_failed}"
