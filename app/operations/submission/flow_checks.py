"""Checks whether a flow or graph could run here now, and lists its errors."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import JsonValue, ValidationError

from app.catalog.flow_catalog import Catalog
from app.catalog.flow_tools import called_flows, faults_of_called_flows
from app.compiler import compile_document
from app.compiler.subflows import faults_of_subflows
from app.errors import InvalidDocument
from app.fleet.admission import faults_here
from app.fleet.definition_files import DefinitionFiles
from app.queries.fleet import Fleet
from app.settings import Settings
from leadhand.flows.documents import FlowDocument
from leadhand.flows.faults import all_faults
from leadhand.flows.graph_faults import faults_of_graph
from leadhand.graphs.documents import GraphDocument
from leadhand.models.views.flow import FlowCheckView, FlowFaultView


class FlowChecks:
    """Checks flows and graphs without running them."""

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        catalog_of: Callable[[str, bool], Catalog],
        files: DefinitionFiles,
    ) -> None:
        self._files = files
        self._settings = settings
        self._fleet = fleet
        self._catalog_of = catalog_of

    def check(self, given: JsonValue, *, folder: str = "", free: bool = False) -> FlowCheckView:
        """Check whether a flow or graph could run in a folder now, and list its errors.

        Those of fields come alone, and so do those of the structure of a graph. Unless `free`,
        only approved definitions of the folder count.
        """
        if isinstance(given, dict) and given.get("kind") == "graph":
            return self._check_graph(given, folder, free=free)
        found = all_faults(FlowDocument, given)
        faults = [FlowFaultView(path=path, message=text) for path, text in found.faults]
        if isinstance(found.flow, FlowDocument):
            asked_for = {name: text or "" for name, text in found.flow.inputs.items()}
            document = found.flow.model_copy(update={"inputs": asked_for})
            here = self._faults_here(document, folder, is_valid=not faults, free=free)
            faults += map(_fault_view, here)
        return FlowCheckView(valid=not faults, faults=faults)

    def _check_graph(self, given: JsonValue, folder: str, *, free: bool) -> FlowCheckView:
        try:
            graph = GraphDocument.model_validate(given)
        except ValidationError as error:
            found = faults_of_graph(error, given)
            faults = [FlowFaultView(path=path, message=text) for path, text in found]
            return FlowCheckView(valid=False, faults=faults)
        folder = folder or graph.cwd or ""
        workers = self._fleet.inventories(self._files.of(folder, free=free))
        called = called_flows(graph, self._catalog_of(folder, free))
        here = [*faults_here(graph, self._settings, workers)]
        here += faults_of_called_flows(graph, called)
        return FlowCheckView(valid=not here, faults=list(map(_fault_view, here)))

    def _faults_here(
        self, document: FlowDocument, folder: str, *, is_valid: bool, free: bool
    ) -> list[InvalidDocument]:
        """Errors in a flow's files and subflows, and in its use of agents and tools."""
        folder = folder or document.cwd or ""
        whole, faults = self._catalog_of(folder, free).gather(document)
        not_found = {fault.field for fault in faults}
        workers = self._fleet.inventories(self._files.of(folder, free=free))
        faults += faults_here(whole, self._settings, workers)
        faults += (one for one in faults_of_subflows(whole) if one.field not in not_found)
        if not faults and is_valid:
            try:
                compile_document(whole)
            except InvalidDocument as error:
                faults.append(error)
        return list({(fault.field, fault.hint): fault for fault in faults}.values())


def _fault_view(fault: InvalidDocument) -> FlowFaultView:
    return FlowFaultView(path=fault.field, message=f"it is {fault.value!r}; {fault.hint}")
