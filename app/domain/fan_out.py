"""Expands a step's list outcome into the items of the for_each nodes over it (pure)."""

from __future__ import annotations

from pydantic import JsonValue
from pydantic_core import to_json

from app.domain import routing
from app.domain.addresses import path_of
from app.domain.outcomes import Outcome
from app.domain.program import Program
from app.domain.references import of_outcome, parse
from leadhand.models.reasons import Reason, ReasonCode


def expansion(
    program: Program, address: str, outcome: Outcome
) -> tuple[dict[str, JsonValue], Outcome]:
    """Returns the items of each for_each over a step's outcome; the outcome fails if it is no list.

    If the value is not a list, or is too long, the outcome becomes `failed`. An outcome without a
    value has no items: those that an older run of the step listed do not count for its next run.
    """
    if not program.has_widths_to_write:
        return {}, outcome
    expand: dict[str, JsonValue] = {}
    name = path_of(address).rpartition("/")[2]
    for node, reference in routing.widths(program, path_of(address)).items():
        parsed = parse(reference)
        if parsed is None or parsed.word != name:
            continue
        expand[node] = []
        if outcome.word == "succeeded":
            value = of_outcome(outcome.model_dump(mode="json"), parsed.keys)
            if isinstance(value, list) and len(value) <= routing.MAX_WIDTH:
                expand[node] = [_item_json(item) for item in value]
            else:
                outcome = _no_list(outcome, node, reference)
    return (expand if outcome.word == "succeeded" else {key: [] for key in expand}), outcome


def _item_json(item: JsonValue) -> str:
    """Serializes an item like stored outcomes: NaN becomes null."""
    return to_json(item, inf_nan_mode="null").decode()


def _no_list(outcome: Outcome, node: str, reference: str) -> Outcome:
    text = f"for_each of {node!r} needs a list of at most {routing.MAX_WIDTH} items at {reference}"
    reason = Reason(code=ReasonCode.INVALID_ANSWER, text=text)
    return outcome.model_copy(update={"word": "failed", "reason": reason})
