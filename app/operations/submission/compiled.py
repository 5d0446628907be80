"""Checks and compiles submitted documents; the same document again gets the same program."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from app.catalog.flow_catalog import Catalog
from app.catalog.flow_tools import called_flows, faults_of_called_flows, with_flows
from app.compiler import compile_document
from app.domain.program import Program
from app.errors import InvalidDocument, SeveralInvalid
from app.fleet.admission import Where, admit
from app.settings import Settings
from app.store.recent import Recent
from leadhand.flows.documents import AnyDocument
from leadhand.models.views.fleet import WorkerView

#: The number of programs that a process keeps, and the size (characters of JSON) of the largest
#: document whose program is kept.
KEPT, LARGEST = 128, 64_000


class Checked(NamedTuple):
    """Where a document can run, and its program."""

    where: Where
    program: Program


class CompiledPrograms:
    """The programs of documents that were submitted lately."""

    def __init__(self) -> None:
        self._recent = Recent[str, Program](KEPT)

    def compile(self, document: AnyDocument, text: str, catalog: Catalog) -> Program:
        """Compile a document to a program, or reuse a recent result. Raises InvalidDocument.

        `text` is the JSON of the document.
        """
        # Flows that a graph calls are read from their files each time: they may change.
        called = called_flows(document, catalog)
        return with_flows(self._without_flows(document, text), document, called)

    def check(
        self,
        document: AnyDocument,
        text: str,
        catalog: Catalog,
        settings: Settings,
        workers: Sequence[WorkerView],
    ) -> Checked:
        """Check a document against workers and flows, and compile it; `text` is its JSON.

        Raises SeveralInvalid with the errors of all checks.
        """
        where, program, faults = None, None, list[InvalidDocument]()
        try:
            where = admit(document, settings, workers)
        except InvalidDocument as error:
            faults += error.all
        called = called_flows(document, catalog)
        faults += faults_of_called_flows(document, called)
        try:
            program = with_flows(self._without_flows(document, text), document, called)
        except InvalidDocument as error:
            faults += error.all
        if where is None or program is None or faults:
            # Two checks may report the same error.
            raise SeveralInvalid([*{(one.field, one.hint): one for one in faults}.values()])
        return Checked(where, program)

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
