"""Checks whether a flow or graph could run here now, and lists all errors."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import JsonValue, ValidationError

from app.catalog.flow_catalog import Catalog
from app.catalog.flow_tools import called_flows, faults_of_called_flows
from app.compiler import compile_document
from app.compiler.graph import missing_inputs
from app.compiler.subflows import faults_of_subflows
from app.errors import InvalidDocument
from app.fleet.admission import faults_here
from app.fleet.definition_files import DefinitionFiles
from app.operations.submission.drafts import Found
from app.queries.fleet import Fleet
from app.settings import Settings
from leadhand.flows.documents import FlowDocument
from leadhand.flows.faults import all_faults
from leadhand.flows.graph_faults import faults_of_graph
from leadhand.graphs.documents import ANY_STRUCTURE, GraphDocument
from leadhand.models.views import FlowCheckView, FlowFaultView

_OF_AGENTS = (".agentType", ".agent", ".model")


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
        """Check whether a flow or graph could run in a folder now, and list all errors.

        Unless `free`, only approved definitions of the folder count.
        """
        if isinstance(given, dict) and given.get("kind") == "graph":
            return self._check_graph(given, folder, free=free)
        found = all_faults(FlowDocument, given)
        faults = [FlowFaultView(path=path, message=text) for path, text in found.faults]
        if isinstance(found.flow, FlowDocument):
            asked_for = {name: text or "" for name, text in found.flow.inputs.items()}
            document = found.flow.model_copy(update={"inputs": asked_for})
            faults += map(
                _fault_view,
                self._faults_here(document, folder, known=[f.path for f in faults], free=free),
            )
        return FlowCheckView(valid=not faults, faults=faults)

    def _check_graph(self, given: JsonValue, folder: str, *, free: bool) -> FlowCheckView:
        faults = list[FlowFaultView]()
        try:
            GraphDocument.model_validate(given)
        except ValidationError as error:
            found = faults_of_graph(error, given)
            faults = [FlowFaultView(path=path, message=text) for path, text in found]
        rest = rest_of_graph(given)
        if rest is not None:
            folder = folder or rest.cwd or ""
            here = Found(self._files.of(folder, free=free), folder, free)
            faults += map(_fault_view, self._faults_of_graph(rest, here))
        return FlowCheckView(valid=not faults, faults=faults)

    def faults_at_submit(self, rest: GraphDocument, found: Found) -> list[InvalidDocument]:
        """List missing inputs of a graph, and why it could not run here with its definitions."""
        found = found._replace(folder=found.folder or rest.cwd or "")
        return [*missing_inputs(rest), *self._faults_of_graph(rest, found)]

    def _faults_of_graph(self, graph: GraphDocument, found: Found) -> list[InvalidDocument]:
        workers = self._fleet.inventories(found.definitions)
        faults = [*faults_here(graph, self._settings, workers)]
        called = called_flows(graph, self._catalog_of(found.folder, found.free))
        return [*faults, *faults_of_called_flows(graph, called)]

    def _faults_here(
        self, document: FlowDocument, folder: str, *, known: list[str], free: bool
    ) -> list[InvalidDocument]:
        """Errors in a flow's files and subflows, and in its use of agents and tools."""
        folder = folder or document.cwd or ""
        whole, faults = self._catalog_of(folder, free).gather(document)
        not_found = {fault.field for fault in faults}
        workers = self._fleet.inventories(self._files.of(folder, free=free))
        here = faults_here(whole, self._settings, workers)
        # Without a valid `agents` part, the agents of agentTypes are unknown.
        is_mapped = not any(path.partition(".")[0] == "agents" for path in known)
        faults += (one for one in here if is_mapped or not one.field.endswith(_OF_AGENTS))
        faults += (one for one in faults_of_subflows(whole) if one.field not in not_found)
        if not faults and not known:
            try:
                compile_document(whole)
            except InvalidDocument as error:
                faults.append(error)
        return list({(fault.field, fault.hint): fault for fault in faults}.values())


def rest_of_graph(given: JsonValue) -> GraphDocument | None:
    """Returns what is valid of a graph, to be checked further; None if nothing is."""
    try:
        return GraphDocument.model_validate(given, context=ANY_STRUCTURE)
    except ValidationError:
        return None


def _fault_view(fault: InvalidDocument) -> FlowFaultView:
    return FlowFaultView(path=fault.field, message=f"it is {fault.value!r}; {fault.hint}")
