"""Compiles graphs: each step of a tool needs the steps that it refers to or depends on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from pydantic import JsonValue

from app.compiler.nodes import CHILD_S, ToolNode, node_id, tool_node
from app.compiler.workflow import compile_loop, compile_workflow
from app.core.folders import BESIDE
from app.core.program import ITEMS, LOCAL, Action, Program, RetryPolicy, Step, Template
from app.core.references import literal, literals
from app.core.routing import MAX_WIDTH
from app.errors import InvalidDocument, SeveralInvalid
from leadhand.graphs.documents import GraphDocument, GraphStep, accepts_null
from leadhand.graphs.faults import needs_of
from leadhand.graphs.values import Held, fill, value_at
from leadhand.models.cycles import in_order
from leadhand.models.documents import LoopDocument, WorkflowDocument
from leadhand.models.references import Reference, ReferenceFault, Target, references_in, target_of
from leadhand.models.tool_schemas import is_local_tool

_ITEMS_TIMEOUT_S = 60.0
#: Joins that decide when a step is claimed whether it is skipped.
_DECIDING = ("all", "any")


def _retry_policy(step: GraphStep) -> RetryPolicy:
    longest = max(step.backoff_s, step.max_backoff_s)
    return RetryPolicy(
        retries=step.retries,
        backoff_s=step.backoff_s,
        max_backoff_s=longest,
        jitter=step.jitter,
        on=step.retry_on,
    )


class KnownArgument(NamedTuple):
    """An argument whose value is known before its step runs."""

    name: str
    value: JsonValue


def compile_graph(document: GraphDocument) -> Program:
    """Compiles a graph. Raises InvalidDocument if inputs lack values, or a for_each its list."""
    faults = _missing_inputs(document)
    compiler, body = _Compiler(document), list[Step]()
    for number, step in enumerate(document.steps):
        try:
            body += compiler.nodes(number, step)
        except InvalidDocument as error:
            faults += error.all
    if faults:
        raise SeveralInvalid(faults)
    return Program(name=document.name, body=tuple(body))


def _missing_inputs(document: GraphDocument) -> list[InvalidDocument]:
    """Returns an error for each input without a value, which each run must give."""
    return [
        InvalidDocument(f"inputs.{name}", None, "it has no default; give it a value")
        for name, value in document.inputs.items()
        if value is None and not accepts_null(document.input_schema, name)
    ]


def known_arguments(document: GraphDocument, step: GraphStep) -> list[KnownArgument]:
    """Returns the arguments of a step whose values are known before any step has run."""
    scope = _Scope(document)
    found = []
    for name, value in step.arguments.items():
        try:
            if scope.is_known(value):
                found.append(KnownArgument(name, scope.evaluate(value)))
        except ReferenceFault:  # the check of the document reports it
            continue
    return found


class _Scope:
    """The inputs and the names of a graph."""

    def __init__(self, document: GraphDocument) -> None:
        self.inputs = document.inputs
        self.names = frozenset(step.name for step in document.steps)
        self.nullable = {
            name for name in document.inputs if accepts_null(document.input_schema, name)
        }

    def targets(self, value: JsonValue) -> list[Target]:
        """What the references in a value are about."""
        return [target_of(reference, self.names) for reference in references_in(value)]

    def is_known(self, value: JsonValue) -> bool:
        """Whether the value can be evaluated before any step runs."""
        return all(
            target.kind == "input"
            and (self.inputs.get(target.name) is not None or target.name in self.nullable)
            for target in self.targets(value)
        )

    def evaluate(self, value: JsonValue) -> JsonValue:
        """A known value, with its inputs filled in. Raises ReferenceFault."""
        return fill(value, self._input)

    def _input(self, reference: Reference) -> JsonValue:
        target = target_of(reference, self.names)
        return value_at(reference, target, Held(self.inputs[target.name]))


class _Compiler:
    """Makes the nodes of each step."""

    def __init__(self, document: GraphDocument) -> None:
        self._document = document
        self._scope = _Scope(document)
        ids = {
            step.name: node_id(step.name, "step", number)
            for number, step in enumerate(document.steps, 1)
        }
        # A name that can be an id is that of its own step, so that people need not tell them apart.
        self._taken = {name for name, id_ in ids.items() if name == id_}
        self._ids = {name: name if name == id_ else self._free_id(id_) for name, id_ in ids.items()}

    def nodes(self, number: int, step: GraphStep) -> list[Step]:
        """The node of a step; before it, one that makes the list of its for_each."""
        needs = tuple(self._ids[name] for name in self._needs_of(step))
        called = self._called(f"steps[{number}].session", step)
        is_local = is_local_tool(step.called)
        node = Step(
            id=self._ids[step.name],
            action=called.action,
            needs=needs,
            when=step.when,
            timeout_s=called.timeout_of(
                step.timeout_s, is_given="timeout_s" in step.model_fields_set
            ),
            retry=_retry_policy(step),
            critical=step.critical,
            label=step.name,
            queue=LOCAL if is_local else "",
            folder=called.folder and not is_local,
            limits=called.limits,
            inputs=self._inputs_of(step, called),
            template=self._template(step, step.values, step.when),
            at_once=step.at_once,
        )
        if step.for_each is None:
            return [node]
        if self._scope.is_known(step.for_each):
            items = self._items(f"steps[{number}].for_each", step.for_each)
            if not self._is_decided_once(step):
                return [node.model_copy(update={"for_each": items})]
        maker = self._maker(step, needs)
        changed = {"for_each": f"${{{maker.id}}}", "needs": (*needs, maker.id)}
        return [maker, node.model_copy(update=changed)]

    def _needs_of(self, step: GraphStep) -> tuple[str, ...]:
        """The steps that a step waits for; one that always runs, by default all others."""
        needs = needs_of(step, self._scope.names)
        if needs or step.join != "always":
            return needs
        others = [one for one in self._document.steps if one.join != "always"]
        needed = {name for one in others for name in needs_of(one, self._scope.names)}
        return tuple(one.name for one in others if one.name not in needed)

    def _called(self, path: str, step: GraphStep) -> ToolNode:
        if step.session is None:
            return tool_node(step.called)
        return session_node(path, step.session, self._document)

    def _items(self, path: str, for_each: str | list[JsonValue]) -> tuple[JsonValue, ...]:
        """A list that is known. Raises InvalidDocument if it is none."""
        try:
            found = self._scope.evaluate(for_each)
        except ReferenceFault as fault:
            raise InvalidDocument(path, fault.text, fault.why) from None
        if not isinstance(found, list) or len(found) > MAX_WIDTH:
            raise InvalidDocument(path, for_each, f"give a list of at most {MAX_WIDTH} items")
        return tuple(found)

    def _maker(self, step: GraphStep, needs: tuple[str, ...]) -> Step:
        """The node that makes the list, so that any reference may be one and may have a default.

        It is skipped with its step, unless the condition is one of each item.
        """
        when = None if self._is_of_items(step.when) else step.when
        return Step(
            id=self._free_id(f"{self._ids[step.name][:56]}-items"),
            action=Action.TOOL,
            needs=needs,
            when=when,
            timeout_s=_ITEMS_TIMEOUT_S,
            critical=step.critical,
            quick=True,
            label=f"{step.name} (list)",
            inputs={"tool": ITEMS},
            template=self._template(step, {"items": step.for_each}, when),
        )

    def _is_decided_once(self, step: GraphStep) -> bool:
        """Whether a join or a condition decides about the whole list, which is then empty."""
        return step.join in _DECIDING or (
            step.when is not None and not self._is_of_items(step.when)
        )

    def _is_of_items(self, when: str | None) -> bool:
        return any(target.kind in ("item", "index") for target in self._scope.targets(when))

    def _template(
        self, step: GraphStep, arguments: Mapping[str, JsonValue], when: str | None
    ) -> Template:
        waits = needs_of(step, self._scope.names) if step.join in _DECIDING else ()
        targets = self._scope.targets([dict(arguments), when])
        inputs = {target.name for target in targets if target.kind == "input"}
        steps = {target.name for target in targets if target.kind == "step"}
        return Template(
            arguments=dict(arguments),
            when=when,
            names={name: self._ids[name] for name in sorted(steps)},
            inputs={name: self._scope.inputs[name] for name in sorted(inputs)},
            join=step.join,
            waits=tuple(self._ids[name] for name in waits),
        )

    def _inputs_of(self, step: GraphStep, called: ToolNode) -> dict[str, JsonValue]:
        expect: dict[str, JsonValue] = {} if step.expect is None else {"expect": step.expect}
        # Other steps may run at the same time as a child session.
        is_beside = called.action is Action.CHILD and step.name not in self._alone
        beside: dict[str, JsonValue] = {BESIDE: True} if is_beside else {}
        return {**called.inputs, **expect, **beside}

    @cached_property
    def _alone(self) -> frozenset[str]:
        """The steps beside which no other runs, and no other item: all others wait or are done."""
        steps = self._document.steps
        needs = {step.name: self._needs_of(step) for step in steps}
        order = in_order(needs)
        bits = {name: 1 << number for number, name in enumerate(order)}
        # All steps before and after each one, as bits.
        before, after = dict.fromkeys(needs, 0), dict.fromkeys(needs, 0)
        for name in order:
            for one in needs[name]:
                before[name] |= before[one] | bits[one]
        for name in reversed(order):
            for one in needs[name]:
                after[one] |= after[name] | bits[name]
        return frozenset(
            step.name
            for step in steps
            if before[step.name].bit_count() + after[step.name].bit_count() == len(steps) - 1
            and (step.for_each is None or step.at_once == 1)
        )

    def _free_id(self, id_: str) -> str:
        """The id, with a number appended if another node has it."""
        number, free = 1, id_
        while free in self._taken:
            number += 1
            free = f"{id_[:58]}-{number}"
        self._taken.add(free)
        return free


def session_node(
    path: str, session: LoopDocument | WorkflowDocument, graph: GraphDocument
) -> ToolNode:
    """Returns the fields of a graph step that runs a loop or workflow as a child session.

    The child works in the folder and place of the graph. Its texts for agents are the
    arguments of the step, filled in when it starts. Raises InvalidDocument for a session that
    could not be created.
    """
    try:
        compile_loop(session) if isinstance(session, LoopDocument) else compile_workflow(session)
    except InvalidDocument as error:
        raise InvalidDocument(f"{path}.{error.field}", error.value, error.hint) from None
    own = session.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    around = graph.model_dump(mode="json", include={"priority", "cwd", "place"}, exclude_none=True)
    return ToolNode(
        Action.CHILD,
        {
            "session": literal(session.kind),
            "document": literals({**own, "kind": session.kind, **around}),
        },
        folder=False,
        timeout_s=CHILD_S,
    )
