"""Checkers that are tools: what they need of workers, and which workers may run them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from app.compiler import compile_document
from app.compiler.requirements import requirements_of
from app.fleet.admission import tools_in
from app.security.command_permission import free_commands
from leadhand.flows.documents import AnyDocument

document_of = TypeAdapter[AnyDocument](AnyDocument).validate_python
TOOL = {"tool": "sums:judge"}
DOER = {"agent": "claude"}
LOOP = {"kind": "loop", "task": "t", "doer": DOER, "checkers": ["agent: Good?", TOOL]}
PHASES = [{"name": "p", "task": "t", "checkers": [TOOL]}]
DOCUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "loop": (LOOP, "checkers[1]"),
    "workflow": (
        {"kind": "workflow", "name": "w", "doer": DOER, "phases": PHASES},
        "phases[0].checkers[0]",
    ),
    "graph": (
        {"kind": "graph", "steps": [{"name": "a", "session": LOOP}]},
        "steps[0].session.checkers[1]",
    ),
    "flow": (
        {"kind": "flow", "name": "f", "steps": [{"type": "check", "checker": TOOL}]},
        "steps[0].checker",
    ),
    "plan": (
        {"kind": "plan", "request": "r", "agent": "claude", "checkers": [TOOL]},
        "checkers[0]",
    ),
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_document_needs_the_tool(kind: str):
    given, path = DOCUMENTS[kind]
    document = document_of(given)
    (need,) = requirements_of(document).tools
    assert (need.path, need.tool) == (path, "sums:judge")
    program = compile_document(document)
    if kind in ("loop", "workflow", "flow"):
        assert tools_in(program) == {"sums:judge"}


def test_tool_as_checker_needs_no_right_to_run_commands():
    assert list(free_commands(document_of(LOOP))) == []
