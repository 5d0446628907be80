"""Loads the value of an outcome, also one that is stored as an artifact."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue

from app.domain.artifacts import ArtifactSource, value_artifact
from app.domain.ids import SessionRef


def load_value(
    outcome: Mapping[str, JsonValue], ref: SessionRef, artifacts: ArtifactSource
) -> JsonValue:
    """Returns a stored outcome's value, from its artifact if it has one. Raises ArtifactUnknown."""
    found = value_artifact(outcome)
    if found is None:
        return outcome.get("value")
    value: JsonValue = json.loads(artifacts.read(ref, *found))
    return value
