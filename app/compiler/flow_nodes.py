"""Parts of the nodes that the compiler of flows makes (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from app.domain.ids import lock_name
from app.domain.program import Action, Step
from app.domain.references import literal
from app.errors import InvalidDocument
from leadhand.flows.documents import FlowDocument, HumanStep
from leadhand.models.forms import FREE_TEXT

#: Timeout of the built-in quick steps.
QUICK_TIMEOUT_S = 60.0


def required_inputs(document: FlowDocument) -> dict[str, str]:
    """Returns the text of each input of a flow. Raises InvalidDocument if one has no default."""
    given = {}
    for name, text in document.inputs.items():
        if text is None:
            raise InvalidDocument(
                f"inputs.{name}", None, "this input has no default; give it a value"
            )
        given[name] = text
    return given


def quick_step(id_: str, tool: str, arguments: Mapping[str, JsonValue]) -> Step:
    """Builds a tool step that may run at once in the worker that released it, without a message."""
    inputs: dict[str, JsonValue] = {"tool": tool, "arguments": dict(arguments)}
    return Step(id=id_, action=Action.TOOL, quick=True, timeout_s=QUICK_TIMEOUT_S, inputs=inputs)


def rules_of(step: HumanStep) -> dict[str, JsonValue]:
    """Returns the answer rules of a human step as JSON in `rules`; empty if any text is valid."""
    rules = step.rules.model_dump_json(exclude_unset=True, exclude_none=True)
    return {} if step.rules == FREE_TEXT else {"rules": rules}


def limits_of(agent: str | None, model: str | None) -> tuple[str, ...]:
    """Returns the keys of the limits that a step counts toward: its agent's and its model's."""
    named = (("agent", agent), ("model", model))
    return tuple(lock_name(f"{kind}:{name}") for kind, name in named if name)


def optional_literals(**texts: str | None) -> dict[str, JsonValue]:
    """Returns the texts that are not None, escaped so that none is parsed as a reference."""
    return {name: literal(text) for name, text in texts.items() if text is not None}


def literals(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Escapes the texts at the top level of a dict, so that none is parsed as a reference."""
    return {k: literal(v) if isinstance(v, str) else v for k, v in value.items()}
