"""Compilers: loop, workflow, flow, graph and plan documents to programs."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import JsonValue

from app.compiler.flow import compile_flow
from app.compiler.graph import compile_graph
from app.compiler.plan import compile_plan
from app.compiler.workflow import compile_loop, compile_workflow
from app.core.program import Loop, Node, Program
from app.core.references import literal
from leadhand.flows.documents import AnyDocument
from leadhand.graphs.documents import GraphDocument
from leadhand.models.documents import LoopDocument, WorkflowDocument
from leadhand.models.plans import PlanDocument


def compile_document(document: AnyDocument) -> Program:
    """Compiles a document of any kind to a program. Raises InvalidDocument."""
    if isinstance(document, LoopDocument):
        return compile_loop(document)
    if isinstance(document, WorkflowDocument):
        return compile_workflow(document)
    if isinstance(document, PlanDocument):
        program = compile_plan(document)
    elif isinstance(document, GraphDocument):
        program = compile_graph(document)
    else:
        program = compile_flow(document)
    if document.leave_out is None:
        return program
    patterns: list[JsonValue] = [literal(pattern) for pattern in document.leave_out]
    return program.model_copy(update={"body": _leaving_out(program.body, patterns)})


def _leaving_out(block: Iterable[Node], patterns: list[JsonValue]) -> tuple[Node, ...]:
    """The nodes, with the by-products in each step that may take the first snapshot."""
    return tuple(
        node.model_copy(update={"body": _leaving_out(node.body, patterns)})
        if isinstance(node, Loop)
        else node.model_copy(update={"inputs": {**node.inputs, "leave_out": patterns}})
        if node.folder or "binds" in node.inputs
        else node
        for node in block
    )
