"""What a flow contains: its subflows, its inputs filled into texts, and its step references (pure).

Subflows are copied when a session is created, so that later changes of the files do not affect it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.core.references import FlowValue, literal, literals, text_of, text_reference, value_of
from app.errors import InvalidDocument
from leadhand.flows.documents import (
    CheckStep,
    CommandStep,
    FlowDefinition,
    FlowDocument,
    LlmStep,
    SubflowStep,
)
from leadhand.flows.structure import (
    Brought,
    faults_of_files,
    faults_of_inputs,
    merge_subflow_agents,
    steps_of,
)
from leadhand.models.references import (
    FlowReference,
    condition_of,
    map_texts,
    split_flow_text,
    whole_in_flow,
)


class Texts(NamedTuple):
    """The run's inputs, and the nodes that each visible label refers to."""

    inputs: Mapping[str, str]
    #: Node paths by label, in the order in which they run; the last one that ran counts.
    nodes: Mapping[str, tuple[str, ...]] = {}
    #: Paths of the nodes whose result is a list: those with forEach.
    lists: frozenset[str] = frozenset()
    #: Whether the texts are of a step with forEach, and may name its item.
    has_item: bool = False
    #: The values of the inputs that are no texts.
    typed: Mapping[str, JsonValue] = {}

    def knowing(self, label: str, *paths: str) -> Texts:
        """Returns a copy in which references to a label resolve to these nodes."""
        return self._replace(nodes={**self.nodes, label: paths})

    def with_list(self, path: str) -> Texts:
        """Returns a copy that knows that the result of this node is a list."""
        return self._replace(lists=self.lists | {path})

    def after(self, *branches: Texts) -> Texts:
        """Returns a copy for the steps after an `if`, which can refer to steps of each branch."""
        nodes = dict(self.nodes)
        for branch in branches:
            for label, paths in branch.nodes.items():
                if paths != self.nodes.get(label):
                    nodes[label] = (*nodes.get(label, ()), *paths)
        lists = self.lists.union(*(branch.lists for branch in branches))
        return self._replace(nodes=nodes, lists=lists)

    def translate(self, text: str) -> JsonValue:
        """Translates a text of a document to a step's input: a reference, or text with references.

        A text that has references to steps within becomes one of parts.

        >>> texts = Texts({"what": "tests"}, {"plan": ("plan",)})
        >>> texts.translate("${steps.plan}"), texts.translate("write ${inputs.what}")
        ('${top/plan:text!}', 'write tests')
        >>> texts.translate("write $${inputs.what}")
        'write ${inputs.what}'
        >>> texts.translate("Plan: ${steps.plan}.")
        {'${text}': ['Plan: ', '${top/plan:text!}', '.']}
        """
        parts = self._parts(text)
        if len(parts) == 1 and not isinstance(parts[0], dict):
            return parts[0]
        return text_of(parts) if parts else ""

    def translate_typed(self, text: str) -> JsonValue:
        """Translates a text of a tool's arguments; a text that is one reference keeps its type.

        >>> texts = Texts({}, {"plan": ("plan",)})
        >>> texts.translate_typed("${steps.plan.files[0]}")
        {'${value}': {'text': '${steps.plan.files[0]}', 'nodes': ['top/plan'], 'label': 'plan'}}
        """
        found = whole_in_flow(text, self.nodes)
        if found is not None and found.kind == "input" and found.name in self.typed:
            return map_texts(self.typed[found.name], literal)
        parts = self._parts(text)
        return parts[0] if len(parts) == 1 else self.translate(text)

    def condition(self, when: str) -> JsonValue:
        """Translates the text of a condition to a step input that resolves to true or false."""
        written = condition_of(when)
        found = whole_in_flow(written.text, self.nodes, has_item=self.has_item)
        assert found is not None
        return self._value(found, "not" if written.is_negated else "is")

    def list_value(self, text: str) -> JsonValue:
        """Translates the reference of a forEach to a step input that resolves to the list."""
        found = whole_in_flow(text, self.nodes)
        assert found is not None
        return self._value(found)

    def result_of(self, path: str) -> JsonValue:
        """Returns a step input that resolves to a node's text, or its list if it has a forEach."""
        if path in self.lists:
            return value_of(FlowValue("${steps.x}", "x"), [path])
        return text_reference([path])

    def _parts(self, text: str) -> list[JsonValue]:
        """The literal texts and the references of a text, in order."""
        parts, said = list[JsonValue](), None
        for part in split_flow_text(text, self.nodes, has_item=self.has_item):
            if isinstance(part, FlowReference) and part.kind != "input":
                parts += [] if said is None else [literal(said)]
                parts.append(self._reference(part))
                said = None
            elif isinstance(part, FlowReference):
                said = (said or "") + self.inputs[part.name]
            else:
                said = (said or "") + (part if isinstance(part, str) else part.text)
        return parts if said is None else [*parts, literal(said)]

    def _reference(self, found: FlowReference) -> JsonValue:
        paths = self.nodes.get(found.name, ())
        if found.is_plain and self.lists.isdisjoint(paths):
            return text_reference(paths)
        return self._value(found)

    def _value(self, found: FlowReference, condition: str = "") -> dict[str, JsonValue]:
        value = FlowValue(found.text, found.name, condition)
        return value_of(value, self.nodes.get(found.name, ()))

    def translate_all(self, texts: Iterable[str]) -> list[JsonValue]:
        """Translates each text of the document to a step's input."""
        return [self.translate(text) for text in texts]

    def translate_value(self, value: JsonValue) -> JsonValue:
        """Translates all texts in a JSON value, at any depth, to references or literals."""
        return map_texts(value, self.translate_typed)


def types_in(document: FlowDocument) -> set[str]:
    """Returns all agentTypes that the flow and its subflows use or map to agents."""
    found = set[str]()
    for flow in (document, *document.flows.values()):
        found |= flow.agents.keys() - {"*"}
        for one in steps_of(flow):
            checker = one.step.checker if isinstance(one.step, CheckStep) else None
            found.add(getattr(one.step, "agent_type", None) or "")
            found.add(getattr(checker, "agent", None) or "")
    return found - {""}


def parts_of(document: FlowDocument) -> Iterator[tuple[str, FlowDefinition]]:
    """Yields a flow and each subflow, with the prefix of its paths in errors (`flows.NAME.`)."""
    yield "", document
    for name, flow in document.flows.items():
        agents = merge_subflow_agents(flow.agents, document.agents)
        yield f"flows.{name}.", flow.model_copy(update={"agents": agents})


def faults_in_files(flow: FlowDefinition, brought: Brought) -> Iterator[InvalidDocument]:
    """Yields an error for each unknown reference in the texts of a flow's files."""
    for fault in faults_of_files(flow, brought):
        yield InvalidDocument(fault.path, fault.text, fault.message)


def faults_of_subflows(document: FlowDocument) -> Iterator[InvalidDocument]:
    """Yields an error for each subflow that is missing or does not get its inputs."""
    for path, flow in parts_of(document):
        for one in steps_of(flow):
            for name in one.step.flow_names if isinstance(one.step, SubflowStep) else ():
                if name not in document.flows:
                    hint = "there is no such flow; `leadhand flows` lists the flows"
                    yield InvalidDocument(f"{path}{one.path}.flowNames", name, hint)
        for fault in faults_of_inputs(flow, document.flows):
            yield InvalidDocument(f"{path}{fault.path}", fault.text, fault.message)


def child_document(
    document: FlowDocument, name: str, inputs: Mapping[str, str], texts: Texts
) -> dict[str, JsonValue]:
    """Builds the document of a subflow's child session; only its inputs may have references."""
    flow = document.flows[name]
    child = {
        **flow.model_dump(mode="json", exclude_none=True, exclude_defaults=True),
        "kind": "flow",
        "name": name,
        "agents": merge_subflow_agents(flow.agents, document.agents),
        "attempts": flow.attempts or document.attempts,
        **_protected(document, flow),
        **document.model_dump(mode="json", include={"priority", "cwd", "place", "leave_out"}),
        **_bundle(document, flow),
    }
    found = literals(child)
    passed = {key: texts.translate(text) for key, text in inputs.items()}
    defaults = {key: literal(text) for key, text in flow.inputs.items() if text is not None}
    found["inputs"] = {**defaults, **passed}
    return found


def _protected(document: FlowDocument, flow: FlowDefinition) -> dict[str, JsonValue]:
    """The protected files of both: a subflow adds some, and removes none."""
    both = dict.fromkeys((*document.protected, *flow.protected))
    return {"protected": [one.model_dump(mode="json") for one in both]} if both else {}


def has_isolated_check(document: FlowDocument, name: str) -> bool:
    """Whether a subflow, or one that it runs, has a check that judges the work alone."""
    flow = document.flows[name]
    steps = (
        one.step for part in (flow, *_flows_of(document, flow).values()) for one in steps_of(part)
    )
    return any(isinstance(step, CheckStep) and step.checker.isolated for step in steps)


def _flows_of(document: FlowDocument, flow: FlowDefinition) -> dict[str, FlowDefinition]:
    """The flows of the document that one of its subflows runs, and those that these run."""
    flows = dict[str, FlowDefinition]()
    left = [flow]
    while left:
        for step in (one.step for one in steps_of(left.pop())):
            for name in step.flow_names if isinstance(step, SubflowStep) else ():
                if name not in flows and name in document.flows:
                    flows[name] = document.flows[name]
                    left.append(flows[name])
    return flows


def _bundle(document: FlowDocument, flow: FlowDefinition) -> dict[str, JsonValue]:
    """The flows and files of the document that one of its subflows needs."""
    flows = _flows_of(document, flow)
    steps = [one.step for part in (flow, *flows.values()) for one in steps_of(part)]
    commands = {step.command_name for step in steps if isinstance(step, CommandStep)}
    files = {step.markdown_file for step in steps if isinstance(step, LlmStep)}
    parts = {
        "flows": flows,
        "commands": {n: m for n, m in document.commands.items() if n in commands},
        "markdown": {n: m for n, m in document.markdown.items() if n in files},
    }
    bundled = document.model_copy(update=parts)
    needed = {name for name, part in parts.items() if part or name != "markdown"}
    return bundled.model_dump(mode="json", include=needed, exclude_none=True)
