"""Finds where the value came from that a step of a graph could not use (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from pydantic import JsonValue

from leadhand.graphs.documents import GraphDocument, GraphStep
from leadhand.graphs.missing_reference import missing_reference
from leadhand.graphs.references import Reference, ReferenceFault, parse, references_in, target_of
from leadhand.models.reasons import Reason
from leadhand.models.tool_names import BUILT_IN_TOOLS

_UNFIT = re.compile(
    r"^tool '[^']*': (?:argument '(?P<argument>[^']*)'|there is no argument )", re.DOTALL
)
_NO_LIST = re.compile(r"^for_each needs a list of at most \d+ items; ")


class Origins(NamedTuple):
    """The steps and inputs that a value was made from, the nearest first."""

    #: The names of the steps whose tools may return another value if they are called again.
    steps: tuple[str, ...] = ()
    #: The names of the inputs.
    inputs: tuple[str, ...] = ()


def fails_again(root: Reason) -> bool:
    r"""Whether a step failed because of the values that it was given: it fails in the same way.

    >>> from leadhand.models.reasons import ReasonCode
    >>> failed = lambda text: Reason(code=ReasonCode.FAILED_STEP, text=text)
    >>> fails_again(failed("tool 'a': argument 'n': it is \"x\"; it should be a valid integer"))
    True
    >>> fails_again(failed("${a.b} has no value: it has no 'b'; it has: c"))
    True
    >>> fails_again(failed("tool 'a' raised: ValueError: argument 'n': it is odd"))
    False
    """
    refused = any(form.match(root.text) for form in (_UNFIT, _NO_LIST))
    return refused or missing_reference(root.text) is not None


def origins(document: GraphDocument, step: GraphStep, root: Reason) -> Origins:
    """Returns the steps and inputs that a refused value of this step was made from."""
    by_name = {one.name: one for one in document.steps}
    steps, inputs = dict[str, None](), dict[str, None]()
    todo = [(step, one) for one in _refused(step, root)]
    while todo:
        at, reference = todo.pop(0)
        with suppress(ReferenceFault):
            target = target_of(reference, by_name)
            if target.kind == "input":
                inputs[target.name] = None
            elif target.kind == "item":
                todo += [(at, one) for one in references_in(at.for_each)]
            elif target.kind == "step" and target.name not in steps:
                steps[target.name] = None
                source = by_name[target.name]
                todo += [(source, one) for one in references_in([source.values, source.for_each])]
    return Origins(
        tuple(name for name in steps if by_name[name].tool not in BUILT_IN_TOOLS), tuple(inputs)
    )


def _refused(step: GraphStep, root: Reason) -> Iterator[Reference]:
    """The references whose values the step could not use."""
    written = missing_reference(root.text)
    unfit = _UNFIT.match(root.text)
    value: JsonValue = None
    if written is not None:
        with suppress(ReferenceFault):
            yield from (one for one in parse(written) if isinstance(one, Reference))
    elif unfit is not None:
        value = step.values.get(unfit["argument"] or "")
    elif _NO_LIST.match(root.text):
        value = step.for_each
    yield from references_in(value)
