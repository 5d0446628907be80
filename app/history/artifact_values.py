"""Loads the value of an outcome, also one that is stored as an artifact."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue

from app.domain.artifacts import ArtifactSource, result_artifact, value_artifact
from app.domain.ids import SessionRef


def load_value(
    outcome: Mapping[str, JsonValue], ref: SessionRef, artifacts: ArtifactSource
) -> JsonValue:
    """Returns the value in a step's stored outcome, loaded from an artifact if it is kept in one.

    Raises ArtifactUnknown.
    """
    found = value_artifact(outcome)
    if found is not None:
        value: JsonValue = json.loads(artifacts.read(ref, *found))
        return value
    value, found = outcome.get("value"), result_artifact(outcome)
    if found is None or not isinstance(value, dict):
        return value
    return {**value, "result": json.loads(artifacts.read(ref, *found))}
