"""Documents become programs: what each step is given, and under which names."""

from __future__ import annotations

from app.frontends import compile_document
from app.program import Loop, Step
from leadhand.documents import LoopDocument, WorkflowDocument


def steps(**fields: object) -> dict[str, Step]:
    document = LoopDocument.model_validate({"task": "t", "checkers": ["true"], **fields})
    (loop,) = compile_document(document).body
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


def test_limits_are_asked_for_by_agent_model_and_key() -> None:
    given = steps(doer={"agent": "x"}, model="m", concurrency_key="k")
    assert given["do"].limits == ("agent:x", "model:m", "key:k")


def test_checkers_of_one_name_are_numbered() -> None:
    given = steps(checkers=["pytest a", "pytest b", "/usr/bin/env x"])
    assert [name for name in given if name.startswith("check.")] == [
        "check.pytest",
        "check.pytest-2",
        "check.env",
    ]


def test_a_task_that_looks_like_a_reference_is_none() -> None:
    assert steps(task="${previous.do.text}")["do"].inputs["task"] == "$${previous.do.text}"


def test_phases_with_names_that_are_no_ids_are_numbered_and_keep_their_label() -> None:
    phases = [
        {"name": name, "task": "t", "checkers": ["true"]}
        for name in ("red", "write tests!", "phase-1", "item")
    ]
    document = WorkflowDocument.model_validate({"name": "w", "phases": phases})
    nodes = [(node.id, node.label) for node in compile_document(document).body]
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
    for loop in compile_document(document).body:
        assert isinstance(loop, Loop)
        do = loop.body[0]
        assert isinstance(do, Step)
        prior = do.inputs["prior"]
        assert isinstance(prior, list)
        shown.append([p["name"] for p in prior if isinstance(p, dict)])
    assert shown == [[], ["a"], ["a"]]
