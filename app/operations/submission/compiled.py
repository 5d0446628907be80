"""Compiles submitted documents; the same document again gets the same program."""

from __future__ import annotations

import hashlib

from app.catalog.catalog import Catalog
from app.catalog.flow_tools import with_flows
from app.compiler import compile_document
from app.domain.program import Program
from app.store.recent import Recent
from leadhand.flows.documents import AnyDocument

#: The number of programs that a process keeps, and the size (characters of JSON) of the largest
#: document whose program is kept.
KEPT, LARGEST = 128, 64_000


class CompiledPrograms:
    """The programs of documents that were submitted lately."""

    def __init__(self) -> None:
        self._recent = Recent[str, Program](KEPT)

    def compile(self, document: AnyDocument, text: str, catalog: Catalog) -> Program:
        """Compile a document to a program, or reuse a recent result. Raises InvalidDocument.

        `text` is the JSON of the document.
        """
        # Flows that a graph calls are read from their files each time: they may change.
        return with_flows(self._without_flows(document, text), document, catalog)

    def _without_flows(self, document: AnyDocument, text: str) -> Program:
        if len(text) > LARGEST:
            return compile_document(document)
        # What a document leaves out may compile otherwise than the default that it could have.
        written = document.model_dump_json(exclude_unset=True)
        key = hashlib.sha256(f"{document.kind} {written}".encode()).hexdigest()
        program = self._recent.get(key)
        if program is None:
            program = self._recent[key] = compile_document(document)
        return program
