"""Finds the `${steps...}`, `${item...}` and `${index}` of a flow's texts (pure).

The grammar is that of graphs. Any other `${...}` is kept, as prompts may have shell variables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

from leadhand.graphs.references import Default, ReferenceFault, parse_at, target_of

_START = re.compile(r"(?<!\$)\$\{\s*(?:(steps)(?=[.\[])|(?:item|index)(?=\s*[.\[?}]))")
#: A label may have any characters but braces.
_ANY_LABEL = re.compile(r"\$\{steps\.([^{}]+)\}")
_NOT = re.compile(r"^not\s+")


class FlowReference(NamedTuple):
    """A reference in a text of a flow, and where it is."""

    text: str
    start: int
    end: int
    kind: Literal["step", "item", "index"]
    #: Of the step.
    label: str = ""
    keys: tuple[str, ...] = ()
    default: Default | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the reference is to the whole text of a step, without keys and default."""
        return self.kind == "step" and not self.keys and self.default is None


class BadReference(NamedTuple):
    """A reference that names nothing, or cannot be parsed."""

    start: int
    end: int
    why: str
    #: The label that is not visible, if this is what is wrong.
    label: str | None = None


def find_references(
    text: str, labels: Collection[str], *, has_item: bool
) -> Iterator[FlowReference | BadReference]:
    """Yields the `${...}` references of a text, also invalid ones; `${item}` only if `has_item`.

    Only a step with forEach has an item.

    >>> [one] = find_references("${steps.a.b[0].c ?? 1}", {"a", "a.b"}, has_item=False)
    >>> one.label, one.keys, one.default
    ('a.b', ('0', 'c'), Default(value=1))
    """
    at = 0
    while (opening := _START.search(text, at)) is not None:
        at = opening.end()
        if opening[1] or has_item:
            found = _reference_at(text, opening.start(), labels)
            at = found.end
            yield found


def _reference_at(text: str, start: int, labels: Collection[str]) -> FlowReference | BadReference:
    written = _ANY_LABEL.match(text, start)
    if written is not None and written[1] in labels:
        return FlowReference(written[0], start, written.end(), "step", written[1])
    try:
        reference, end = parse_at(text, start)
    except ReferenceFault as fault:
        end = written.end() if written is not None else start + 2
        is_label = written is not None and not re.search(r"[\[\]\"]|\?\?", written[1])
        return BadReference(start, end, fault.why, written[1] if written and is_label else None)
    try:
        kind, label, keys = target_of(reference, labels)
    except ReferenceFault as fault:
        return BadReference(start, end, fault.why, reference.parts[1].key)
    assert kind != "input"
    return FlowReference(reference.text, start, end, kind, label, keys, reference.default)


def whole_reference(text: str, labels: Collection[str], *, has_item: bool) -> FlowReference | None:
    """Returns the `${...}` reference that is the entire text, or None."""
    found = next(find_references(text, labels, has_item=has_item), None)
    if not isinstance(found, FlowReference) or (found.start, found.end) != (0, len(text)):
        return None
    return found


class FlowCondition(NamedTuple):
    """The `when` of a step, without its `not`."""

    text: str
    is_negated: bool


def condition_of(when: str) -> FlowCondition:
    """Splits the `when` of a step into its reference and whether a leading `not` negates it.

    >>> condition_of("not ${steps.a.found}")
    FlowCondition(text='${steps.a.found}', is_negated=True)
    """
    text = _NOT.sub("", when)
    return FlowCondition(text, text != when)
