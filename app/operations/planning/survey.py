"""Reads what the first step of a plan found out about its folder."""

from __future__ import annotations

import json

from app.domain.ids import SessionRef
from app.domain.workspaces import WORKSPACE, Survey
from app.store.store import Store


def read_survey(store: Store, ref: SessionRef) -> Survey | None:
    """Returns what the last inspection found out about a plan's folder; None before the first."""
    run = int(store.values(ref, "runs", [WORKSPACE]).get(WORKSPACE, 1))
    address = WORKSPACE if run == 1 else f"{WORKSPACE}~{run}"
    found = store.values(ref, "out", [address]).get(address, "{}")
    value = json.loads(found).get("value")
    return None if value is None else Survey.model_validate(value)
