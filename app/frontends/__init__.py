"""Front ends: each turns one kind of document into a program."""

from __future__ import annotations

from app.frontends.workflow import compile_loop, compile_workflow
from app.program import Program
from leadhand.documents import LoopDocument, WorkflowDocument


def compile_document(document: LoopDocument | WorkflowDocument) -> Program:
    """The program of any document."""
    if isinstance(document, LoopDocument):
        return compile_loop(document)
    return compile_workflow(document)
