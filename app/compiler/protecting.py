"""Builds the step that records protected files, and what doers get to be compared with it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from app.domain.program import Action, Step
from app.domain.references import literal, outcome_reference
from leadhand.models.documents import Protected

#: Seconds to read the protected files; also for a judge that compares and restores a folder.
COMPARE_TIMEOUT_S = 360.0


def recording_step(id_: str, protected: Sequence[Protected], *, label: str) -> Step:
    """Builds the step before the work that records the protected files."""
    return Step(
        id=id_,
        action=Action.CHECK,
        folder=True,
        timeout_s=COMPARE_TIMEOUT_S,
        label=label,
        inputs={"protect": _patterns(protected)},
    )


def protection(step: str, protected: Sequence[Protected]) -> dict[str, JsonValue]:
    """Builds the inputs with which a worker compares the files after a step, if there are any.

    `step` is the one that has recorded them, as references name it.
    """
    if not protected:
        return {}
    before = outcome_reference(step)
    return {"protected": {"patterns": _patterns(protected), "before": before}}


def _patterns(protected: Sequence[Protected]) -> list[JsonValue]:
    return [{"pattern": literal(one.pattern), "allow": list(one.allow)} for one in protected]
