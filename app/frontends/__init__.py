"""Front ends: each turns one kind of document into a program."""

from __future__ import annotations

from app.frontends.flow import compile_flow
from app.frontends.workflow import compile_loop, compile_workflow
from app.program import Program
from leadhand.any_document import AnyDocument
from leadhand.documents import LoopDocument, WorkflowDocument


def compile_document(document: AnyDocument) -> Program:
    """The program of any document."""
    if isinstance(document, LoopDocument):
        return compile_loop(document)
    if isinstance(document, WorkflowDocument):
        return compile_workflow(document)
    return compile_flow(document)
