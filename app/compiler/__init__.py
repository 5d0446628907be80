"""Compilers: loop, workflow, flow, graph and plan documents to programs."""

from __future__ import annotations

from app.compiler.flow import compile_flow
from app.compiler.graph import compile_graph
from app.compiler.plan import compile_plan
from app.compiler.workflow import compile_loop, compile_workflow
from app.domain.program import Program
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
        return compile_plan(document)
    if isinstance(document, GraphDocument):
        return compile_graph(document)
    return compile_flow(document)
