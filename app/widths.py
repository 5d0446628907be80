"""Pure: what the outcome of a step means for the for_each nodes that wait for its width."""

from __future__ import annotations

from pydantic import JsonValue
from pydantic_core import to_json

from app import decide
from app.outcomes import Outcome
from app.program import Program, path_of
from app.reasons import Reason, ReasonCode
from app.references import of_outcome, parse


def expansion(
    program: Program, address: str, outcome: Outcome
) -> tuple[dict[str, JsonValue], Outcome]:
    """The items of each for_each that the step at `address` feeds, and the outcome.

    A step that should give a list and does not has failed, whatever else it says.
    """
    if outcome.word != "succeeded" or not program.has_widths_to_write:
        return {}, outcome
    expand: dict[str, JsonValue] = {}
    name = path_of(address).rpartition("/")[2]
    for node, reference in decide.widths(program, path_of(address)).items():
        parsed = parse(reference)
        if parsed is None or parsed.word != name:
            continue
        value = of_outcome(outcome.model_dump(mode="json"), parsed.keys)
        if not isinstance(value, list) or len(value) > decide.MAX_WIDTH:
            return {}, _no_list(outcome, node, reference)
        expand[node] = [_written(item) for item in value]
    return expand, outcome


def _written(item: JsonValue) -> str:
    """As the outcome is kept, where a number that is none (NaN) is null."""
    return to_json(item, inf_nan_mode="null").decode()


def _no_list(outcome: Outcome, node: str, reference: str) -> Outcome:
    text = f"for_each of {node!r} needs a list of at most {decide.MAX_WIDTH} items at {reference}"
    reason = Reason(code=ReasonCode.INVALID_ANSWER, text=text)
    return outcome.model_copy(update={"word": "failed", "reason": reason})
