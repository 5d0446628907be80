"""Writes a random graph as the document that a user submits."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.engine.graphs.random_graphs import DECLINED, Drawn, Step

_SAME = ("name", "critical", "retries", "backoff_s", "at_once", "depends_on")


def document_of(drawn: Drawn, seed: int) -> dict[str, Any]:
    """The document of a graph; its steps are in any order, and each reference in any spelling."""
    rng = Random(f"spelling {seed}")
    steps = [_step(rng, step) for step in rng.sample(drawn.steps, len(drawn.steps))]
    return {"kind": "graph", "inputs": drawn.inputs, "steps": steps}


def _step(rng: Random, step: Step) -> dict[str, Any]:
    found = {key: step[key] for key in _SAME if key in step}
    found |= {"tool": "echo", "arguments": _written(rng, step["arguments"])}
    if "for_each" in step:
        found["for_each"] = _written(rng, step["for_each"])
    if (when := step["when"] or step["when_of_item"]) is not None:
        found["when"] = "not " * when["not"] + _written(rng, when["value"])
    if step["join"] != "ended" or rng.random() < 0.1 * bool(step["depends_on"]):
        found["join"] = step["join"]
    if DECLINED not in step["retry_on"]:
        found["retry_on"] = step["retry_on"]
    return {**found, "expect": "success"} if step["expects"] else found


def _written(rng: Random, value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, list):
        return [_written(rng, one) for one in value]
    if "ref" in value:
        return _reference(rng, value)
    if "text" in value:
        return "".join(_written(rng, one) for one in value["text"])
    return {key: _written(rng, one) for key, one in value.items()}


def _reference(rng: Random, value: dict[str, Any]) -> str:
    name, *keys = value["ref"]
    is_simple = name.replace("-", "").isalnum()
    is_step = name not in ("inputs", "item", "index")
    if not is_simple:
        name = f"steps[{json.dumps(name)}]"
    elif is_step:
        name = rng.choice((name, f"steps.{name}"))
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    default = f" ?? {json.dumps(value['default'])}" if "default" in value else ""
    return f"${{{name}{path}{default}}}"
