"""Builds graphs in Python: steps that call tools, with references to the results of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from leadhand.client.client import Client, borrowed
from leadhand.flows.faults import faults_of_graph
from leadhand.graphs.documents import GraphDocument, declare_inputs
from leadhand.models.documents import Budget, LoopDocument, WorkflowDocument
from leadhand.models.references import step_reference
from leadhand.models.suggestions import suggest_keywords
from leadhand.models.views.result import ResultView
from leadhand.run import print_message, run_to_end, working_folder

__all__ = ["Graph", "GraphResult", "GraphStep"]


@dataclass(frozen=True)
class GraphStep:
    """A step of a graph that is being built; arguments of other steps may hold it or its parts."""

    name: str

    def ref(self, *keys: str | int) -> str:
        """Return a reference to the step's result, or to a part of it.

        >>> GraphStep("search").ref("papers", 0)
        '${steps.search.papers[0]}'
        """
        return step_reference(self.name, *keys)


@dataclass(frozen=True)
class GraphResult:
    """The result of a graph."""

    session_id: str
    #: completed, failed, stopped, exited or aborted.
    status: str
    #: What each step returned, by its name; `{"error": text}` for one that failed.
    results: dict[str, Any] = field(default_factory=dict)
    #: The failures of steps that are not critical.
    warnings: list[str] = field(default_factory=list)
    #: Why the session ended without success.
    reason: str = ""

    @property
    def success(self) -> bool:
        """Return whether the graph has completed."""
        return self.status == "completed"

    @classmethod
    def of(cls, view: ResultView) -> GraphResult:
        """Build the result from the API's view of a session's result."""
        reason = view.exit_reason or (view.reason.text if view.reason is not None else "")
        return cls(
            session_id=view.session_id,
            status=view.status,
            results=dict(view.results),
            warnings=list(view.warnings),
            reason="" if view.status == "completed" else reason,
        )


class Graph:
    """Steps that call tools; a step runs once all steps that it refers to have ended.

    >>> graph = Graph("papers", inputs={"topic": "agents"})
    >>> search = graph.step("search", "papers:search", {"query": "${inputs.topic}"})
    >>> fetch = graph.step("fetch", "papers:fetch", {"url": "${item}"}, for_each=search.ref("urls"))
    >>> [step.name for step in graph.document().steps]
    ['search', 'fetch']
    """

    @suggest_keywords
    def __init__(
        self,
        name: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        description: str | None = None,
        label: str | None = None,
        cwd: str | Path | None = None,
        budget: Budget | Mapping[str, float] | None = None,
    ) -> None:
        self.name = name
        self._inputs = dict(inputs or {})
        self._steps: list[dict[str, Any]] = []
        self._fields = {
            "name": name,
            "description": description,
            "input_schema": None if input_schema is None else dict(input_schema),
            "label": label,
            "cwd": working_folder(cwd),
            "budget": budget if isinstance(budget, Budget) else dict(budget or {}),
        }

    @suggest_keywords
    def step(
        self,
        name: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        depends_on: Sequence[str | GraphStep] = (),
        when: str | GraphStep | None = None,
        for_each: str | GraphStep | Sequence[Any] | None = None,
        at_once: int | None = None,
        join: Literal["ended", "all", "any", "always"] | None = None,
        critical: bool = True,
        timeout_s: float | None = None,
        retries: int = 0,
        backoff_s: float = 1.0,
        max_backoff_s: float = 60.0,
        jitter: float = 0.5,
        retry_on: Sequence[str] = (),
        expect: Literal["success"] | None = None,
        description: str | None = None,
    ) -> GraphStep:
        """Add a step that calls a tool, and return it; errors are raised when the graph is run.

        By default an agent has an hour, a flow 30 days and any other tool 60 seconds.
        """
        return self._add(
            name,
            timeout_s,
            tool=tool,
            arguments=_written(dict(arguments or {})),
            depends_on=[getattr(one, "name", one) for one in depends_on],
            when=_written(when),
            for_each=_written(for_each),
            at_once=at_once,
            join=join,
            critical=critical,
            retries=retries,
            backoff_s=backoff_s,
            max_backoff_s=max_backoff_s,
            jitter=jitter,
            retry_on=list(retry_on),
            expect=expect,
            description=description,
        )

    @suggest_keywords
    def session(
        self,
        name: str,
        document: LoopDocument | WorkflowDocument | Mapping[str, Any],
        *,
        depends_on: Sequence[str | GraphStep] = (),
        when: str | GraphStep | None = None,
        for_each: str | GraphStep | Sequence[Any] | None = None,
        at_once: int | None = None,
        join: Literal["all", "any"] | None = None,
        critical: bool = True,
        timeout_s: float | None = None,
        description: str | None = None,
    ) -> GraphStep:
        """Add a step that runs a loop or a workflow as a child session, in the graph's folder.

        Give what `Workflow.document()` returns, or the document as a dict. Its tasks and the
        prompts of its checkers may hold references. The result of the step is the newest text of
        its doer. By default it has 30 days.
        """
        return self._add(
            name,
            timeout_s,
            session=_session(document),
            depends_on=[getattr(one, "name", one) for one in depends_on],
            when=_written(when),
            for_each=_written(for_each),
            at_once=at_once,
            join=join,
            critical=critical,
            description=description,
        )

    def _add(self, name: str, timeout_s: float | None, **fields: Any) -> GraphStep:
        # A timeout that is left out is that of the kind of tool.
        limit = {} if timeout_s is None else {"timeout_s": timeout_s}
        self._steps.append({"name": name, **fields, **limit})
        return GraphStep(name)

    def document(self, inputs: Mapping[str, Any] | None = None) -> GraphDocument:
        """Return the graph as the document that the API accepts, with these input values.

        Raises ValueError that names the errors.
        """
        declared = declare_inputs({**self._fields, "inputs": self._inputs})["inputs"]
        unknown = sorted(set(inputs or {}) - declared.keys())
        if unknown:
            known = ", ".join(declared) or "none"
            raise ValueError(f"graph {self.name!r} has no input {unknown[0]!r}; it has: {known}")
        values = {**declared, **(inputs or {})}
        given: dict[str, Any] = {**self._fields, "inputs": values, "steps": self._steps}
        try:
            return GraphDocument.model_validate(given)
        except ValidationError as error:
            found = faults_of_graph(error, given)
        raise ValueError("\n".join(f"{path}: {message}" for path, message in found))

    def run(
        self, inputs: Mapping[str, Any] | None = None, *, client: Client | None = None
    ) -> GraphResult:
        """Run the graph to its end and return its result; Ctrl-C stops it."""
        document = self.document(inputs)
        with borrowed(client) as server:
            return GraphResult.of(run_to_end(server, document, say=print_message))

    def start(
        self, inputs: Mapping[str, Any] | None = None, *, client: Client | None = None
    ) -> str:
        """Start the graph and return its session's id at once."""
        document = self.document(inputs)
        with borrowed(client) as server:
            return server.submit(document).id


def _session(document: LoopDocument | WorkflowDocument | Mapping[str, Any]) -> dict[str, Any]:
    """The document of a step's session, without the folder: that is the graph's."""
    if isinstance(document, Mapping):
        return dict(document)
    written = document.model_dump(mode="json", exclude_defaults=True, exclude={"cwd"})
    return {"kind": document.kind, **written}


def _written(value: Any) -> Any:
    """A value with references in place of steps."""
    if isinstance(value, GraphStep):
        return value.ref()
    if isinstance(value, Mapping):
        return {name: _written(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    return value
