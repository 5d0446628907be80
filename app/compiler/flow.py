"""Compiles flows: agents and tools in sequence, with loops, breaks, ifs and subflows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from app.compiler.folders import CHECK_FOLDER_S, protection, recording_step
from app.compiler.nodes import (
    conversation,
    limits_of,
    node_id,
    optional_literals,
    quick_step,
    required_inputs,
    rules_of,
    tool_node,
)
from app.compiler.subflows import (
    Texts,
    child_document,
    faults_in_files,
    faults_of_subflows,
    has_isolated_check,
)
from app.core.folders import BESIDE
from app.core.program import ITEMS, Action, Given, Loop, Node, Origin, Program, RetryPolicy, Step
from app.core.references import TOP, literal, literals, node_reference
from app.errors import InvalidDocument
from leadhand.flows.documents import (
    BreakStep,
    CheckStep,
    CommandStep,
    ContinueStep,
    Decision,
    FlowDocument,
    HumanStep,
    IfStep,
    LlmStep,
    Message,
    ParallelStep,
    ResetStep,
    StartLoop,
    SubflowStep,
    WaitStep,
)
from leadhand.flows.structure import Brought, Placed, ToolStep, agent_of, nest_steps
from leadhand.flows.typed_inputs import typed_inputs
from leadhand.models.documents import AGENT_TIMEOUT_S
from leadhand.models.references import map_texts, split_flow_text, whole_in_flow
from leadhand.models.tool_schemas import BUILT_IN_TOOLS

#: Attempts per agent step, the first included, unless the flow sets `attempts`.
ATTEMPTS = 5
#: The step that records the protected files, in the outermost block.
_RECORDS = "protect"
#: Step types that send messages to an agent, and those that are part of a conversation.
#: Headings in the prompt that gives an agent a person's answer.
_QUESTION, _ANSWER = "# The question to a person", "# The answer"
_Messaging = LlmStep | CommandStep | HumanStep
_Conversing = LlmStep | CommandStep | Decision | HumanStep | ResetStep


def tool_call(step: ToolStep, id_: str, texts: Texts) -> Step:
    """Builds the node that calls the tool of a flow's step; the list of a forEach is not set."""
    texts = texts._replace(has_item=step.for_each is not None)
    called = tool_node(step.tool)
    inputs = {**called.inputs, "arguments": texts.translate_value(step.arguments)}
    if step.tool not in BUILT_IN_TOOLS and step.quick:
        inputs["quick"] = True
    if step.when is not None and (step.for_each is None or _asks_each_item(step)):
        inputs |= _condition(step.when, texts)
    return Step(
        id=id_,
        action=called.action,
        timeout_s=called.timeout_of(
            step.timeout_seconds, is_given="timeout_seconds" in step.model_fields_set
        ),
        inputs=inputs,
        folder=called.folder,
        limits=called.limits,
        quick=step.quick,
        at_once=step.at_once,
    )


def list_maker(step: ToolStep, id_: str, texts: Texts) -> Step | None:
    """Builds the node that computes the list for a step's forEach; None if it has no forEach.

    It is skipped with its step, unless the condition is one of each item.
    """
    if step.for_each is None:
        return None
    items = _items(step.for_each, texts)
    node = quick_step(id_, ITEMS, {"items": items})
    if step.when is None or _asks_each_item(step):
        return node
    return node.model_copy(update={"inputs": {**node.inputs, **_condition(step.when, texts)}})


def _items(for_each: str | list[JsonValue], texts: Texts) -> JsonValue:
    if isinstance(for_each, list):
        return texts.translate_value(for_each)
    named = whole_in_flow(for_each, ())
    if named is None or named.kind != "input":
        return texts.list_value(for_each)
    written = texts.inputs[named.name]
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        hint = 'a forEach needs a list; give one as JSON, such as ["a", "b"]'
        raise InvalidDocument(f"inputs.{named.name}", written, hint)
    return map_texts(found, literal)


def _asks_each_item(step: ToolStep) -> bool:
    """Whether the condition is one of each item, not of the whole list."""
    return all(isinstance(part, str) for part in split_flow_text(str(step.when), ()))


def _condition(when: str, texts: Texts) -> dict[str, JsonValue]:
    return {"when": texts.condition(when), "skipped": f"its condition was not met: {when}"}


def compile_flow(document: FlowDocument) -> Program:
    """Compiles a flow to a program. Raises InvalidDocument if a file or subflow is missing."""
    brought = Brought(document.commands, document.markdown)
    for fault in (*faults_in_files(document, brought), *faults_of_subflows(document)):
        raise fault
    inputs = required_inputs(document)
    typed = typed_inputs(document.input_schema, inputs)
    block = _Block(document, Texts(inputs, typed=typed))
    if document.protected:
        _check_folder(document)
        label = "protected files before the work"
        block.nodes.append(recording_step(_RECORDS, document.protected, label=label))
    block.take_all(nest_steps(document.steps))
    return Program(name=document.name, body=tuple(block.nodes))


def _check_folder(document: FlowDocument) -> None:
    """Raises InvalidDocument for protected files without a folder that they are in."""
    if document.cwd is None:
        hint = "protected files need a working folder; give one, or leave protected out"
        raise InvalidDocument("cwd", None, hint)


@dataclass
class _Block:
    """Builds the nodes of one list of steps, the branches of its ifs included."""

    document: FlowDocument
    texts: Texts
    nodes: list[Node] = field(default_factory=list)
    #: The condition of the nodes that are added now: they are in a branch of an if.
    given: Given | None = None
    #: The last agent step: its work is what a check judges.
    work: str | None = None
    prefix: str = ""
    #: Prefix of the paths of its nodes.
    path: str = ""
    #: Whether steps of another branch may run at the same time.
    is_beside: bool = False

    def take_all(self, placed: tuple[Placed, ...]) -> None:
        for one in placed:
            step, first = one.step, len(self.nodes)
            sources = [self._take(one)]
            if isinstance(step, _Messaging) and step.continue_on_failure:
                # The step became several nodes, and those after a failed one are skipped.
                sources = [node.id for node in self.nodes[first:]]
            if step.label is not None:
                self.texts = self.texts.knowing(step.label, *(self.path + id_ for id_ in sources))

    def _take(self, one: Placed) -> str:
        """Add a step's nodes; returns the id of the node that holds its outcome."""
        match one.step:
            case LlmStep() | CommandStep():
                return self._add_messages(one, one.step)
            case IfStep():
                return self._if(one, one.step)
            case BreakStep() | ContinueStep():
                return self._break(one, one.step)
            case StartLoop():
                return self._loop(one, one.step)
            case SubflowStep():
                return self._subflows(one, one.step)
            case HumanStep():
                return self._human(one, one.step)
            case _:
                return self._other(one)

    def _other(self, one: Placed) -> str:
        match one.step:
            case CheckStep():
                return self._check(one, one.step)
            case ParallelStep():
                return self._parallel(one)
            case _:
                return self._plain(one)

    def _add_messages(self, one: Placed, step: LlmStep | CommandStep) -> str:
        messages = self._messages(one, step)
        name, before = self._name(one), ""
        for number, message in enumerate(messages, 1):
            id_ = self._free_id(name if number == len(messages) else f"{name}-{number}")
            self._add_agent(one, id_, step, self.texts.translate_all(message.content), after=before)
            before = id_
        return before

    def _add_agent(
        self,
        one: Placed,
        id_: str,
        step: LlmStep | CommandStep | HumanStep,
        lines: list[JsonValue],
        *,
        after: str,
    ) -> None:
        """Add an agent step; with continue_on_failure it is skipped if node `after` failed."""
        assert step.agent_type is not None
        agent = agent_of(self.document, step.agent_type)
        model = None if isinstance(step, HumanStep) else step.model
        node = Step(
            id=id_,
            action=Action.AGENT,
            when=node_reference(after, "succeeded") if after and step.continue_on_failure else None,
            timeout_s=AGENT_TIMEOUT_S if isinstance(step, HumanStep) else step.timeout_seconds,
            folder=True,
            retry=self._retry,
            limits=limits_of(agent, model),
            inputs={"lines": lines, "doer": {"agent": agent}, **optional_literals(model=model)},
        )
        self._add_to_conversation(one, node, step)
        self.work = id_

    def _if(self, one: Placed, step: IfStep) -> str:
        id_ = self._decide(one, step, on="yes", action=Action.DECIDE)
        outer, prefix, work = self.given, self.prefix, self.work
        before, branches_after = self.texts, []
        branches: tuple[tuple[tuple[Placed, ...], Literal["accept", "retry"], str], ...] = (
            (one.body, "accept", "then"), (one.otherwise, "retry", "else"),
        )  # fmt: skip
        for body, verdict, word in branches:
            self.given = Given(node=id_, verdict=verdict)
            self.prefix = f"{id_}-{word}-"
            self.texts = before
            self.take_all(body)
            branches_after.append(self.texts)
            # A skipped branch did no work that a later check could judge.
            self.given, self.prefix, self.work = outer, prefix, work
        self.texts = before.after(*branches_after)
        return id_

    def _break(self, one: Placed, step: BreakStep | ContinueStep) -> str:
        if isinstance(step, BreakStep):
            return self._decide(one, step, on=step.break_on)
        return self._decide(one, step, on=step.continue_on, ends="iteration")

    def _decide(
        self,
        one: Placed,
        step: Decision,
        *,
        on: str,
        action: Action = Action.BREAK,
        ends: Literal["loop", "iteration"] = "loop",
    ) -> str:
        id_ = self._free_id(self._name(one))
        agent = agent_of(self.document, step.agent_type) if step.agent_type else None
        who = optional_literals(script=step.command, agent=agent, model=step.model)
        if step.question is not None:
            who["question"] = self.texts.translate(step.question)
        node = Step(
            id=id_,
            action=action,
            ends=ends,
            timeout_s=step.timeout_seconds,
            folder=True,
            queue="agents" if agent else "",
            retry=self._retry if agent else RetryPolicy(),
            limits=limits_of(agent, step.model),
            inputs={**who, "break_on": on},
        )
        if agent:
            self._add_to_conversation(one, node, step)
        else:
            self._add(one, node)
        return id_

    def _loop(self, one: Placed, step: StartLoop) -> str:
        id_ = self._free_id(self._name(one))
        inner = _Block(
            self.document, self.texts, path=f"{self.path}{id_}/", is_beside=self.is_beside
        )
        inner.take_all(one.body)
        most = step.max_iterations
        self._add(
            one, Loop(id=id_, body=tuple(inner.nodes), max_iterations=most, result=inner.work)
        )
        return id_

    def _subflows(self, one: Placed, step: SubflowStep) -> str:
        name, before = self._name(one), tuple(node.id for node in self.nodes[-1:])
        children, is_beside = [], self.is_beside or len(step.flow_names) > 1
        for flow in step.flow_names:
            if is_beside and has_isolated_check(self.document, flow):
                hint = "its isolated checks cannot run beside other steps; run it before or after"
                raise InvalidDocument(f"{one.path}.flowNames", flow, hint)
            id_ = self._free_id(f"{name}-{flow}".replace(".", "-")[:60])
            document = child_document(self.document, flow, step.inputs, self.texts)
            child = Step(
                id=id_,
                action=Action.CHILD,
                needs=before,
                critical=False,
                label=flow,
                inputs={"document": document, **({BESIDE: True} if is_beside else {})},
            )
            self._add(one, child)
            children.append(id_)
        ended: list[JsonValue] = [node_reference(id_) for id_ in children]
        return self._tool(one, "flow.tally", {"ended": ended}, id_=name, needs=tuple(children))

    def _parallel(self, one: Placed) -> str:
        """Add the nodes of each branch, and one that waits for the last of each."""
        name, before = self._name(one), tuple(node.id for node in self.nodes[-1:])
        prefix, texts, work, is_beside = self.prefix, self.texts, self.work, self.is_beside
        after, ends, self.is_beside = [], [], True
        for number, branch in enumerate(one.branches, 1):
            first = len(self.nodes)
            self.prefix, self.texts, self.work = f"{name}-{number}-", texts, work
            self.take_all(branch)
            self.nodes[first:] = start_beside(self.nodes[first:], before)
            after.append(self.texts)
            ends.append(self.nodes[-1].id)
        self.prefix, self.texts, self.is_beside = prefix, texts.after(*after), is_beside
        results = [self.texts.result_of(self.path + end) for end in ends]
        return self._tool(one, "echo", {"branches": results}, id_=name, needs=tuple(ends))

    def _human(self, one: Placed, step: HumanStep) -> str:
        name = self._name(one)
        ask = self._free_id(f"{name}-ask" if step.agent_type else name)
        question = self.texts.translate(step.question)
        node = Step(
            id=ask,
            action=Action.HUMAN,
            timeout_s=step.timeout_seconds,
            inputs={
                "question": question,
                **rules_of(step),
                # Beside a step that works, the folder changes while the person thinks.
                **({"binds": True} if self.document.cwd and not self.is_beside else {}),
            },
        )
        self._add(one, node)
        if step.agent_type is None:
            return ask
        id_ = self._free_id(name)
        # A person's answer, such as "the second one", means nothing without its question.
        answer = node_reference(ask, "text")
        lines: list[JsonValue] = [_QUESTION, "", question, "", _ANSWER, "", answer]
        self._add_agent(one, id_, step, lines, after=ask)
        return id_

    def _check(self, one: Placed, step: CheckStep) -> str:
        name, agent_type = self._name(one), step.checker.agent
        agent = agent_of(self.document, agent_type) if agent_type else None
        checker = step.checker.model_copy(
            update={"agent": agent, "name": step.checker.name or name}
        )
        prompt = {} if checker.prompt is None else {"prompt": self.texts.translate(checker.prompt)}
        id_ = self._free_id(f"{name}-said")
        if checker.folder is not None and self.document.cwd is None:
            hint = "{0} checkers need a working folder; give one, or leave {0} out"
            where = f"{one.path}.checker.{checker.folder}"
            raise InvalidDocument(where, value=True, hint=hint.format(checker.folder))
        node = Step(
            id=id_,
            action=Action.CHECK,
            timeout_s=checker.limit_s + CHECK_FOLDER_S[checker.folder],
            folder=True,
            limits=limits_of(agent, checker.model),
            inputs={
                "checker": {**literals(checker.model_dump(exclude_none=True)), **prompt},
                "work": node_reference(self.work, "text") if self.work else None,
                "tools_failed": node_reference(self.work, "tools_failed") if self.work else None,
                **({} if self.is_beside else {"lone": True}),
                **({"as_found": True} if checker.clean else {}),
            },
        )
        self._add(one, node)
        arguments: dict[str, JsonValue] = {
            "verdict": node_reference(id_, "verdict"), "text": node_reference(id_, "text"),
        }  # fmt: skip
        return self._tool(one, "flow.require", arguments, id_=name)

    def _plain(self, one: Placed) -> str:
        id_ = self._free_id(self._name(one))
        match one.step:
            case WaitStep() as step:
                self._add(one, Step(id=id_, action=Action.WAIT, inputs={"seconds": step.seconds}))
            case ToolStep() as step:
                self._call(one, step, id_)
            case ResetStep() as step:
                thread = self._conversation(step)
                node = quick_step(id_, "flow.forget", {"conversation": literal(thread)})
                self._add_to_conversation(one, node, step)
            case _:
                raise AssertionError(one.step.type)
        return id_

    def _call(self, one: Placed, step: ToolStep, id_: str) -> None:
        """Add the call of a tool; before it, a node that makes the list of its forEach."""
        node = tool_call(step, id_, self.texts)
        maker_id = self._free_id(f"{id_[:56]}-items")
        maker = list_maker(step, maker_id, self.texts)
        if maker is not None:
            self._add(one, maker)
            node = node.model_copy(update={"for_each": f"${{{maker.id}}}"})
            self.texts = self.texts.with_list(self.path + id_)
        self._add(one, node)

    def _tool(
        self,
        one: Placed,
        tool: str,
        arguments: Mapping[str, JsonValue],
        *,
        id_: str,
        needs: tuple[str, ...] | None = None,
    ) -> str:
        """Add a quick step that calls a built-in tool."""
        free = self._free_id(id_)
        self._add(one, quick_step(free, tool, arguments).model_copy(update={"needs": needs}))
        return free

    def _add_to_conversation(self, one: Placed, node: Step, step: _Conversing) -> None:
        """Add a step of a conversation."""
        self._add(one, node.model_copy(update={"conversation": self._conversation(step)}))

    def _add(self, one: Placed, node: Node) -> None:
        """Add a node to the block with the fields that all nodes of a flow have."""
        step = one.step
        type_ = getattr(step, "agent_type", None)
        origin = Origin(
            path=one.path,
            kind=step.type,
            index=one.index,
            total=one.total,
            agent=agent_of(self.document, type_) if type_ else None,
            identifier=getattr(step, "identifier", None),
        )
        label = node.label or step.label or step.type
        more: dict[str, object] = {"given": self.given, "label": label, "origin": origin}
        if isinstance(node, Step):
            more["critical"] = node.critical and not getattr(step, "continue_on_failure", False)
            folder = getattr(step, "working_folder", None)
            more["inputs"] = {
                **node.inputs,
                **optional_literals(working_folder=folder),
                **(self._protection if _is_by_agent(node) else {}),
            }
        self.nodes.append(node.model_copy(update=more))

    @property
    def _protection(self) -> dict[str, JsonValue]:
        protected = self.document.protected
        return protection(f"{TOP}{_RECORDS}", protected) if protected else {}

    @property
    def _retry(self) -> RetryPolicy:
        return RetryPolicy(retries=(self.document.attempts or ATTEMPTS) - 1)

    def _conversation(self, step: _Conversing) -> str:
        assert step.agent_type is not None
        assert step.identifier is not None
        agent = agent_of(self.document, step.agent_type)
        return conversation(agent, step.agent_type, step.identifier)

    def _name(self, one: Placed) -> str:
        return node_id(one.step.label, one.step.type, one.index, prefix=self.prefix)

    def _free_id(self, id_: str) -> str:
        """The id, with a number appended if another node of the block has it."""
        taken = {node.id for node in self.nodes}
        numbered = (f"{id_[:58]}-{n}" for n in range(2, len(taken) + 3))
        return id_ if id_ not in taken else next(n for n in numbered if n not in taken)

    def _messages(self, one: Placed, step: LlmStep | CommandStep) -> tuple[Message, ...]:
        """The messages of a step: in the step itself, in a Markdown file or in a command file."""
        if isinstance(step, CommandStep):
            return self._command(one, step)
        if step.messages is not None:
            return step.messages
        messages = self.document.markdown.get(str(step.markdown_file))
        if messages is None:
            hint = "there is no such file; write it beneath the folder of the flows"
            raise InvalidDocument(f"{one.path}.markdownFile", step.markdown_file, hint)
        return messages

    def _command(self, one: Placed, step: CommandStep) -> tuple[Message, ...]:
        messages = self.document.commands.get(step.command_name)
        if messages is None:
            hint = "there is no such command; write commands/NAME.json or .md beside the flows"
            raise InvalidDocument(f"{one.path}.commandName", step.command_name, hint)
        return messages


def _is_by_agent(node: Step) -> bool:
    """Whether an agent works, or decides: it may change files then, too."""
    decides = node.action in (Action.BREAK, Action.DECIDE)
    return node.action is Action.AGENT or (decides and node.queue == "agents")


def start_beside(nodes: Sequence[Node], before: tuple[str, ...]) -> list[Node]:
    """Makes a branch of nodes start in parallel: its first ones wait only for the nodes `before`.

    A node without `needs` waits for the one before it, which is in another branch for the first.
    """
    ids = {node.id for node in nodes}
    placed = list[Node]()
    for number, node in enumerate(nodes):
        needs = node.needs
        if needs is None:
            needs = before if number == 0 else (nodes[number - 1].id,)
        elif not ids.issuperset(needs):
            needs = before
        placed.append(node.model_copy(update={"needs": needs}))
    return placed
