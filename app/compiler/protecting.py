"""Builds the step that records protected files, and what doers get to be compared with it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from app.domain.program import Action, Step
from app.domain.references import literal, outcome_reference
from leadhand.models.documents import Protected
from leadhand.models.forms import AnswerRules, GivenAnswer

#: Seconds to read the protected files; also for a judge that compares and restores a folder.
COMPARE_TIMEOUT_S = 360.0
#: Seconds that a person has to answer; then the answer is no.
ANSWER_TIMEOUT_S = 7 * 24 * 3600.0
_YES_OR_NO = AnswerRules(choices=("yes", "no"), default=GivenAnswer(choice="no")).model_dump_json(
    exclude_unset=True, exclude_none=True
)


def recording_step(id_: str, protected: Sequence[Protected], *, label: str) -> Step:
    """Builds the step before the work that records the protected files."""
    return _reading(id_, {"protect": _patterns(protected)}, label=label)


def protection(
    step: str, protected: Sequence[Protected], *, asks: bool = False
) -> dict[str, JsonValue]:
    """Builds the inputs with which a worker compares the files after a step, if there are any.

    `step` is the one that has recorded them, as references name it. With `asks` a person decides
    about changes in steps of their own.
    """
    if not protected:
        return {}
    before = outcome_reference(step)
    more: dict[str, JsonValue] = {"asks": True} if asks else {}
    return {"protected": {"patterns": _patterns(protected), "before": before, **more}}


def asking_steps(step: str, protected: Sequence[Protected]) -> tuple[Step, ...]:
    """Builds the steps after a doer in which a person takes or refuses changes of protected files.

    The question is about the files as they are: if they differ once it is answered, it is asked
    once more.
    """
    given = protection(step, protected)
    first = _reading("protected", {**given, "look": {}})
    steps, shown = [first], "protected"
    for again in ("", "-again"):
        asked, taken = f"protected.ask{again}", f"protected.take{again}"
        when = f"${{{shown}:question}}"
        look: JsonValue = {
            "answer": f"${{{asked}:choice}}",
            "shown": f"${{{shown}:files}}",
            "is_last": bool(again),
        }
        steps += [
            Step(
                id=asked,
                action=Action.HUMAN,
                when=when,
                label="protected files",
                timeout_s=ANSWER_TIMEOUT_S,
                inputs={"question": when, "rules": _YES_OR_NO},
            ),
            _reading(taken, {**given, "look": look}, when=when),
        ]
        shown = taken
    return tuple(steps)


def _reading(
    id_: str,
    inputs: dict[str, JsonValue],
    *,
    label: str = "protected files",
    when: str | None = None,
) -> Step:
    return Step(
        id=id_,
        action=Action.CHECK,
        when=when,
        folder=True,
        timeout_s=COMPARE_TIMEOUT_S,
        label=label,
        inputs=inputs,
    )


def _patterns(protected: Sequence[Protected]) -> list[JsonValue]:
    return [{"pattern": literal(one.pattern), "allow": list(one.allow)} for one in protected]
