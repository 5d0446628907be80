"""Pure: what stands in a flow's texts for what a run was given and what its steps came to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.references import literal
from leadhand.flow_structure import INPUT_REFERENCE, STEP_REFERENCE


class Texts(NamedTuple):
    """The run's inputs, and the node behind each label that can be seen."""

    inputs: Mapping[str, str]
    nodes: Mapping[str, str] = {}

    def knowing(self, label: str, node: str) -> Texts:
        """The same with one more label."""
        return self._replace(nodes={**self.nodes, label: node})

    def line(self, text: str) -> str:
        """A text as a step's inputs have it: a reference, or a literal with its inputs filled in.

        >>> texts = Texts({"what": "tests"}, {"plan": "plan"})
        >>> texts.line("${steps.plan}"), texts.line("write ${inputs.what}")
        ('${plan:text!}', 'write tests')
        """
        label = STEP_REFERENCE.match(text)
        if label is not None and label.group(1) in self.nodes:
            return f"${{{self.nodes[label.group(1)]}:text!}}"
        return literal(INPUT_REFERENCE.sub(lambda found: self.inputs[found.group(1)], text))

    def lines(self, texts: Iterable[str]) -> list[JsonValue]:
        """Each of them."""
        return [self.line(text) for text in texts]

    def within(self, value: JsonValue) -> JsonValue:
        """A value with each text in it."""
        if isinstance(value, str):
            return self.line(value)
        if isinstance(value, list):
            return [self.within(item) for item in value]
        if isinstance(value, dict):
            return {name: self.within(item) for name, item in value.items()}
        return value
