"""Checks the structure of a graph (names, references, order of steps), and words its errors."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from pydantic import JsonValue

from leadhand.graphs.values import Held, value_at
from leadhand.models.cycles import find_cycles, show_cycle
from leadhand.models.references import (
    Reference,
    ReferenceFault,
    Target,
    condition_of,
    hint_of,
    parse,
    references_in,
    target_of,
    texts_in,
    whole,
)
from leadhand.models.suggestions import listed, nearest
from leadhand.models.tool_schemas import shape_of

if TYPE_CHECKING:
    from leadhand.graphs.documents import GraphStep

#: The most steps of a graph that run at its end.
MAX_LAST = 100
#: The step took longer than its timeout; the service that it asked was busy.
TIMEOUT, BUSY = "timeout", "busy"
#: A server could not be reached, or the connection to it broke: as exceptions of Python are named.
CONNECTION = ("ConnectionError", "OSError")
_NAMED = re.compile(
    r"timeout|busy|exit ([1-9]\d?|1\d\d|2[0-4]\d|25[0-5])|http ([1-5]\d\d|[1-5]xx)"
    r"|[A-Z_]\w*"
)
_NO_VALUE = re.compile(r"(?P<reference>\$\{.*?\}) has no value: ")


class GraphFault(NamedTuple):
    """An error in a graph: its path, what is wrong and how to fix it."""

    path: str
    message: str
    hint: str
    value: str | None = None

    def __str__(self) -> str:
        value = "" if self.value is None else f"it is {self.value!r}: "
        return f"{self.path}: {value}{self.message}; {self.hint}"


class GraphMalformed(ValueError):
    """The steps of a graph do not fit together: all errors, in order."""

    def __init__(self, faults: Sequence[GraphFault]) -> None:
        super().__init__(faults)
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))


def needs_of(step: GraphStep, names: Collection[str]) -> tuple[str, ...]:
    """Returns the steps that a step depends on, in the order in which it names them."""
    held: list[JsonValue] = [step.when, step.for_each, step.values]
    targets = (target_of(reference, names) for reference in references_in(held))
    referred = (target.name for target in targets if target.kind == "step")
    return tuple(dict.fromkeys([*step.depends_on, *referred]))


def faults_of(steps: Sequence[GraphStep], inputs: Mapping[str, JsonValue]) -> Iterator[GraphFault]:
    """Yields all errors of the steps of a graph; cycles only of steps with a name of their own."""
    names = [step.name for step in steps]
    known = dict.fromkeys(names)
    yield from _same_names(names)
    for number, step in enumerate(steps):
        yield from _faults_of_step(f"steps[{number}]", step, known, inputs)
    yield from _too_many_last(steps)
    times = Counter(names)
    yield from _cycles([step for step in steps if times[step.name] == 1], names)


def _too_many_last(steps: Sequence[GraphStep]) -> Iterator[GraphFault]:
    """Yields an error if too many steps run at the end: all are read whenever one has ended."""
    last = [n for n, one in enumerate(steps) if one.join in ("always", "ended") and _is_call(one)]
    if len(last) > MAX_LAST:
        path = f"steps[{last[MAX_LAST]}].join"
        message = f"{len(last)} steps run at the end, and {MAX_LAST} may"
        hint = "leave out `ended` where a step need not run after a critical failure"
        yield GraphFault(path, message, hint, steps[last[MAX_LAST]].join)


def _is_call(step: GraphStep) -> bool:
    """Whether a step is a single call of a tool, command or agent."""
    is_tool = step.tool is not None and shape_of(step.tool) != "flow"
    return is_tool and step.for_each is None


def _same_names(names: Sequence[str]) -> Iterator[GraphFault]:
    first = {name: names.index(name) for name, count in Counter(names).items() if count > 1}
    for number, name in enumerate(names):
        if name in first and first[name] != number:
            message = f"steps[{first[name]}] has this name, too"
            yield GraphFault(f"steps[{number}].name", message, "give each step its own", name)


def _faults_of_step(
    path: str, step: GraphStep, names: Collection[str], inputs: Mapping[str, JsonValue]
) -> Iterator[GraphFault]:
    for number, name in enumerate(step.depends_on):
        if name not in names or name == step.name:
            yield _unknown_step(f"{path}.depends_on[{number}]", name, step.name, names)
    yield from _faults_of_when(path, step)
    if isinstance(step.for_each, str) and _is_no_list(step.for_each, names, inputs):
        hint = "give a list, or one reference to a list"
        yield GraphFault(f"{path}.for_each", "it is not a list", hint, step.for_each)
    yield from _faults_of_limits(path, step, names)
    scope = _Scope(step, names, inputs)
    places: list[tuple[str, JsonValue, bool]] = [
        ("when", step.when, step.for_each is not None),
        ("for_each", step.for_each, False),
        (step.field_of_values, step.values, step.for_each is not None),
    ]
    for name, value, has_item in places:
        for where, text in texts_in(value, name):
            yield from scope.faults_of(f"{path}.{where}", text, has_item=has_item)


def _faults_of_limits(path: str, step: GraphStep, names: Collection[str]) -> Iterator[GraphFault]:
    if step.at_once is not None and step.for_each is None:
        hint = "add for_each, or leave it out"
        yield GraphFault(f"{path}.at_once", "the step has no for_each", hint, str(step.at_once))
    if step.join == "always" and not _is_call(step):
        hint = "call a tool, a command or an agent once; a step before it may do more"
        yield GraphFault(f"{path}.join", "only a single call can always run", hint, step.join)
    if step.join in ("all", "any") and not _waits(step, names):
        hint = "name steps in depends_on, or leave it out"
        yield GraphFault(f"{path}.join", "the step waits for no other", hint, step.join)
    if step.retry_on and not step.retries and "busy" not in step.retry_on:
        hint = "give `retries`, or leave it out"
        yield GraphFault(f"{path}.retry_on", "the step has no retries", hint)
    yield from _faults_of_sessions(path, step)


def _faults_of_sessions(path: str, step: GraphStep) -> Iterator[GraphFault]:
    """Yields an error for each field that would have no effect on an agent, or on a flow."""
    shape = None if step.tool is None else shape_of(step.tool)
    if shape == "flow" and step.retries:
        hint = "give the flow more `attempts`, or leave it out"
        yield GraphFault(f"{path}.retries", "a flow is not run again", hint, str(step.retries))
    if shape in ("agent", "flow") and step.expect is not None:
        hint = "give it to a tool that returns an object, or leave it out"
        message = f"the result of a tool {shape}:NAME has no `success`"
        yield GraphFault(f"{path}.expect", message, hint, step.expect)


def _waits(step: GraphStep, names: Collection[str]) -> bool:
    try:
        return bool(needs_of(step, names))
    except ReferenceFault:
        return True  # it is reported as a fault of the reference


def _faults_of_when(path: str, step: GraphStep) -> Iterator[GraphFault]:
    try:
        is_wrong = step.when is not None and whole(condition_of(step.when).text) is None
    except ReferenceFault:
        return  # it is reported as a fault of the reference
    if is_wrong:
        hint = "give one reference, such as ${search.found}, or `not` and a reference"
        yield GraphFault(f"{path}.when", "it is not a condition", hint, step.when)


def _is_no_list(for_each: str, names: Collection[str], inputs: Mapping[str, JsonValue]) -> bool:
    """Whether the text is no reference, or one to an input whose value is no list."""
    try:
        reference = whole(for_each)
        if reference is None:
            return True
        target = target_of(reference, names)
        if target.kind != "input" or inputs.get(target.name) is None:
            return False
        return not isinstance(value_at(reference, target, Held(inputs[target.name])), list)
    except ReferenceFault:
        return False  # it is reported as a fault of the reference


class _Scope:
    """What the references of a step may name."""

    def __init__(
        self, step: GraphStep, names: Collection[str], inputs: Mapping[str, JsonValue]
    ) -> None:
        self._step = step
        self._names = names
        self._inputs = inputs

    def faults_of(self, path: str, text: str, *, has_item: bool) -> Iterator[GraphFault]:
        """Yields an error for each reference in a text that names nothing."""
        try:
            references = [part for part in parse(text) if isinstance(part, Reference)]
        except ReferenceFault as fault:
            message, _, hint = fault.why.partition("; ")
            yield GraphFault(path, message, self._in_brackets(text) or hint, fault.text)
            return
        for reference in references:
            try:
                target = target_of(reference, self._names)
            except ReferenceFault as fault:
                hint = hint_of(reference, self._names)
                yield GraphFault(path, fault.why, hint, reference.text)
                continue
            yield from self._faults_of_target(path, reference, target, has_item=has_item)

    def _in_brackets(self, text: str) -> str:
        """What to write for the step that a malformed reference begins with; '' if none."""
        fitting = (name for name in self._names if f"${{{name}" in text)
        name = max(fitting, key=len, default="")
        return f"write ${{steps[{json.dumps(name)}]...}} for this step" if name else ""

    def _faults_of_target(
        self, path: str, reference: Reference, target: Target, *, has_item: bool
    ) -> Iterator[GraphFault]:
        if target.kind == "step" and target.name == self._step.name:
            hint = "refer to another step"
            yield GraphFault(path, "the step refers to itself", hint, reference.text)
        elif target.kind == "input" and target.name not in self._inputs:
            near = nearest(target.name, self._inputs)
            known = listed(self._inputs)
            hint = f"did you mean {near!r}?" if near else f"declare it in `inputs`; there: {known}"
            message = f"there is no input {target.name!r}"
            yield GraphFault(path, message, hint, reference.text)
        elif target.kind == "input" and self._inputs[target.name] is not None:
            yield from _missing_part(path, reference, target, self._inputs[target.name])
        elif target.kind in ("item", "index") and not has_item:
            hint = "add for_each to this step, or write ${steps.NAME} for a step of this name"
            message = f"${{{target.kind}}} is known only in a step with for_each"
            yield GraphFault(path, message, hint, reference.text)


def _missing_part(
    path: str, reference: Reference, target: Target, value: JsonValue
) -> Iterator[GraphFault]:
    """Yields an error if an input has no such part."""
    try:
        value_at(reference, target, Held(value))
    except ReferenceFault as fault:
        message, _, hint = fault.why.partition("; ")
        yield GraphFault(path, message, hint or 'give a default: ${... ?? "text"}', fault.text)


def _unknown_step(path: str, name: str, own: str, names: Collection[str]) -> GraphFault:
    if name == own:
        return GraphFault(path, "the step would wait for itself", "name another step", name)
    near = nearest(name, names)
    hint = f"did you mean {near!r}?" if near else f"there are: {listed(names)}"
    return GraphFault(path, "there is no such step", hint, name)


def _cycles(steps: Sequence[GraphStep], names: Sequence[str]) -> Iterator[GraphFault]:
    """Yields one error for each set of steps that wait for each other; `names` are of all steps."""
    known = frozenset(step.name for step in steps)
    for cycle in find_cycles({step.name: _known_needs(step, known) for step in steps}):
        path = f"steps[{names.index(cycle[0])}]"
        hint = "remove one of these references, or one name in depends_on"
        yield GraphFault(path, f"steps wait for each other: {show_cycle(cycle)}", hint)


def _known_needs(step: GraphStep, names: Collection[str]) -> list[str]:
    """The other steps that a step names, in spite of faults in it."""
    found = [name for name in step.depends_on if name in names]
    held: list[JsonValue] = [step.when, step.for_each, step.values]
    for _, text in texts_in(held, ""):
        with suppress(ReferenceFault):
            for reference in references_in(text):
                with suppress(ReferenceFault):
                    target = target_of(reference, names)
                    found += [target.name] if target.kind == "step" else []
    return [name for name in dict.fromkeys(found) if name != step.name]


def exit_error(code: int) -> str:
    """Returns the error name of a command that exited with this code, such as `exit 75`."""
    return f"exit {code}"


def http_error(status: int) -> str:
    """Returns the error name of an HTTP request with this status, such as `http 503`."""
    return f"http {status}"


def check_error_name(name: str) -> str:
    """Returns the name of an error to retry a step on (`exit 75`); raises ValueError if invalid.

    >>> [check_error_name(name) for name in ("ConnectionError", "http 5xx", "exit 75")]
    ['ConnectionError', 'http 5xx', 'exit 75']
    """
    if _NAMED.fullmatch(name) is None:
        raise ValueError(
            "it is not an error; give the name of an exception's class, 'exit 75', 'http 503', "
            "'http 5xx', 'timeout' or 'busy'"
        )
    return name


def missing_reference(error: str) -> str | None:
    """Returns the reference that had no value, as it is written; None for another error.

    >>> missing_reference("${a.b} has no value: it has no 'b'"), missing_reference("no such page")
    ('${a.b}', None)
    """
    found = _NO_VALUE.match(error)
    return None if found is None else found["reference"]
