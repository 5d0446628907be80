"""Pure: what stands in a flow's texts for what a run was given and what its steps came to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.references import literal, told_of
from leadhand.flow_structure import ESCAPED, INPUT_REFERENCE, STEP_REFERENCE

_PUT = re.compile(rf"{ESCAPED.pattern}|{INPUT_REFERENCE.pattern}")


class Texts(NamedTuple):
    """The run's inputs, and the nodes behind each label that can be seen."""

    inputs: Mapping[str, str]
    #: Their paths, in the order in which they run: whichever ran last is meant.
    nodes: Mapping[str, tuple[str, ...]] = {}

    def knowing(self, label: str, *paths: str) -> Texts:
        """The same after a step of that label, which ran if what follows does."""
        return self._replace(nodes={**self.nodes, label: paths})

    def after(self, *branches: Texts) -> Texts:
        """The same after one of these has run: which one, only the run knows."""
        nodes = dict(self.nodes)
        for branch in branches:
            for label, paths in branch.nodes.items():
                if paths != self.nodes.get(label):
                    nodes[label] = (*nodes.get(label, ()), *paths)
        return self._replace(nodes=nodes)

    def line(self, text: str) -> str:
        """A text as a step's inputs have it: a reference, or a literal with its inputs filled in.

        >>> texts = Texts({"what": "tests"}, {"plan": ("plan",)})
        >>> texts.line("${steps.plan}"), texts.line("write ${inputs.what}")
        ('${top/plan:text!}', 'write tests')
        >>> texts.line("write $${inputs.what}")
        'write ${inputs.what}'
        """
        label = STEP_REFERENCE.match(text)
        if label is not None and label.group(1) in self.nodes:
            return told_of(self.nodes[label.group(1)])
        return literal(_PUT.sub(self._put, text))

    def _put(self, found: re.Match[str]) -> str:
        name = found.group(1)
        return "${" if name is None else self.inputs[name]

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
