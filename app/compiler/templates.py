"""Fills a flow's inputs into its texts and translates its step references (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.domain.references import literal, text_of, text_reference
from leadhand.flows.structure import ESCAPED, INPUT_REFERENCE, STEP_IN_TEXT, STEP_REFERENCE

_PLACEHOLDER = re.compile(rf"{ESCAPED.pattern}|{INPUT_REFERENCE.pattern}")


class Texts(NamedTuple):
    """The run's inputs, and the nodes that each visible label refers to."""

    inputs: Mapping[str, str]
    #: Node paths by label, in the order in which they run; the last one that ran counts.
    nodes: Mapping[str, tuple[str, ...]] = {}

    def knowing(self, label: str, *paths: str) -> Texts:
        """Returns a copy in which references to a label resolve to these nodes."""
        return self._replace(nodes={**self.nodes, label: paths})

    def after(self, *branches: Texts) -> Texts:
        """Returns a copy for the steps after an `if`, which can refer to steps of each branch."""
        nodes = dict(self.nodes)
        for branch in branches:
            for label, paths in branch.nodes.items():
                if paths != self.nodes.get(label):
                    nodes[label] = (*nodes.get(label, ()), *paths)
        return self._replace(nodes=nodes)

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
        label = STEP_REFERENCE.match(text)
        if label is not None and label.group(1) in self.nodes:
            return text_reference(self.nodes[label.group(1)])
        parts, at = list[JsonValue](), 0
        for found in STEP_IN_TEXT.finditer(text):
            is_escaped = text[: found.start()].endswith("$")
            if not is_escaped and found.group(1) in self.nodes:
                parts += [self._literal(text[at : found.start()])] if at < found.start() else []
                parts.append(text_reference(self.nodes[found.group(1)]))
                at = found.end()
        if not parts:
            return self._literal(text)
        return text_of([*parts, self._literal(text[at:])] if at < len(text) else parts)

    def _literal(self, text: str) -> str:
        return literal(_PLACEHOLDER.sub(self._substitute, text))

    def _substitute(self, found: re.Match[str]) -> str:
        name = found.group(1)
        return "${" if name is None else self.inputs[name]

    def translate_all(self, texts: Iterable[str]) -> list[JsonValue]:
        """Translates each text of the document to a step's input."""
        return [self.translate(text) for text in texts]

    def translate_value(self, value: JsonValue) -> JsonValue:
        """Translates all texts in a JSON value, at any depth, to references or literals."""
        if isinstance(value, str):
            return self.translate(value)
        if isinstance(value, list):
            return [self.translate_value(item) for item in value]
        if isinstance(value, dict):
            return {name: self.translate_value(item) for name, item in value.items()}
        return value
