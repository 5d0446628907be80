"""Workflows as graph documents, their errors, and commands in words."""

from __future__ import annotations

import asyncio
import logging
import math
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from leadhand.graphs.documents import GraphDocument
from leadhand.research import (
    AgentConfig,
    KeywordDecomposer,
    Workflow,
    WorkflowStep,
    WorkflowValidationError,
)
from leadhand.research.document import graph_document


def flow(*steps: WorkflowStep) -> Workflow:
    return Workflow("w", "d", list(steps))


#: Its name can stand in a reference only as it is.
C_D = WorkflowStep("c d", "t", {})


def arguments_of(given: dict[str, Any], **config: Any) -> dict[str, Any]:
    workflow = flow(WorkflowStep("a", "t", {}), WorkflowStep("b", "t", given), C_D)
    document = graph_document(
        workflow, AgentConfig(**config), logging.getLogger("leadhand.research")
    )
    GraphDocument.model_validate(document)
    found: dict[str, Any] = document["steps"][1]["arguments"]
    return found


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("${a}", "${a}"),
        ("${a.x.y}", "${a.x.y ?? null}"),
        ("${steps.a}", "${steps.a}"),
        ('${a.x ?? "d"}', '${a.x ?? "d"}'),
        ("got ${a.x}!", 'got ${a.x ?? ""}!'),
        ("${c d}", '${steps["c d"]}'),
        ("${c d.x.y}", '${steps["c d"].x.y ?? null}'),
        ("${nothing.x} and ${a}", '$${nothing.x} and ${a ?? ""}'),
        ("${HOME}/x", "$${HOME}/x"),
        ("${a", "$${a"),
        ("$${HOME}", "$${HOME}"),
        ("plain", "plain"),
        (["${a}", {"k": "${a.z}"}], ["${a}", {"k": "${a.z ?? null}"}]),
        (7, 7),
    ],
)
def test_references_without_a_value_get_a_default(given: Any, written: Any) -> None:
    assert arguments_of({"x": given}) == {"x": written}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("${aa.x}", "${aa.x}: there is no step 'aa'; did you mean 'a', or write"),
        ("${inputs.x}", "'inputs' is a reserved word"),
        ("${not a reference}", "it is not a reference"),
        ("see ${steps.nothing}", "there is no step 'nothing'"),
    ],
)
def test_reference_to_no_step_is_refused(text: str, why: str) -> None:
    with pytest.raises(WorkflowValidationError) as refused:
        flow(WorkflowStep("a", "t", {}), WorkflowStep("b", "t", {"x": [text]})).validate()
    assert f"steps[1].arguments.x[0]: {text.removeprefix('see ')}: " in str(refused.value)
    assert why in str(refused.value)


def test_text_that_looks_like_a_reference_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        arguments_of({"x": "see ${nothing}"})
    assert "${nothing} is text" in caplog.text


def test_strict_references_have_no_defaults() -> None:
    given = {"x": "${a.x}", "y": "${c d.x}"}
    written = {"x": "${a.x}", "y": '${steps["c d"].x}'}
    assert arguments_of(given, strict_references=True) == written


def test_arguments_are_converted_as_results_are() -> None:
    given = {"on": date(2026, 1, 2), "tags": {"b", "a"}, "of": "${a}"}
    assert arguments_of(given) == {"on": "2026-01-02", "tags": ["a", "b"], "of": "${a}"}


def test_all_errors_of_a_workflow_are_named() -> None:
    workflow = Workflow(
        " ",
        "",
        [
            WorkflowStep("a", "t", {}, timeout=0, depends_on=["b"]),
            WorkflowStep("a", "", {"x": [math.nan]}, retry_count=-1),
        ],
    )
    with pytest.raises(WorkflowValidationError) as raised:
        workflow.validate()
    fields = [one.partition(":")[0] for one in raised.value.problems]
    assert fields == [
        "name", "steps[0].timeout", "steps[0].depends_on", "steps[1].name", "steps[1].tool",
        "steps[1].retry_count", "steps[1].arguments.x[0]",
    ]  # fmt: skip


def test_workflow_needs_a_step() -> None:
    with pytest.raises(WorkflowValidationError, match="give at least one"):
        flow().validate()


def test_step_may_not_need_itself() -> None:
    with pytest.raises(WorkflowValidationError, match="circle: a"):
        flow(WorkflowStep("a", "t", {"x": "${a.y}"})).validate()


def search_papers(query: str, limit: int = 3) -> None:
    del query, limit


def fetch(papers: list[str]) -> None:
    del papers


def write_report(title: str, texts: list[str]) -> None:
    del title, texts


TOOLS: dict[str, Callable[..., Any]] = {
    "search_papers": search_papers,
    "fetch": fetch,
    "write_report": write_report,
}


def decomposed(command: str) -> list[tuple[str, dict[str, Any], list[str]]]:
    workflow = asyncio.run(KeywordDecomposer().decompose(command, TOOLS))
    workflow.validate()
    return [(one.tool, one.arguments, one.depends_on) for one in workflow.steps]


def test_command_becomes_steps_whose_results_flow() -> None:
    assert decomposed('search papers about "agents, and tools" limit=5, fetch them, then '
                      "write a report 'State of the art'") == [
        ("search_papers", {"limit": 5, "query": "agents, and tools"}, []),
        ("fetch", {"papers": '${steps["search_papers"]}'}, ["search_papers"]),
        ("write_report", {"title": "State of the art", "texts": '${steps["fetch"]}'}, ["fetch"]),
    ]  # fmt: skip


def test_numbered_lines_are_steps() -> None:
    found = decomposed("1. search agents\n2. fetch")
    assert [one[0] for one in found] == ["search_papers", "fetch"]


def test_part_without_a_tool_is_named_with_the_tools() -> None:
    with pytest.raises(WorkflowValidationError, match=r"no tool fits 'dance'.*fetch, search_pap"):
        decomposed("search agents then dance")


def test_empty_command_is_refused() -> None:
    with pytest.raises(WorkflowValidationError, match="the command is empty"):
        decomposed("  ")


def test_import_of_the_package_is_light() -> None:
    code = (
        "import sys, leadhand.research; print('pydantic' in sys.modules, 'httpx2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
