"""A person's answer finds the step that asked for it; the first answer counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from app.errors import AnswerUnwanted
from app.keys import SessionRef
from app.outcomes import Outcome

if TYPE_CHECKING:
    from app.engine import Engine

#: How many parked steps are looked at where none is named.
LOOKED_AT = 1000


def give_answer(engine: Engine, session: str, text: str, address: str | None) -> None:
    """Settle the step that asked. Raises SessionUnknown, AnswerUnwanted.

    The same answer to the same step again is no other answer.
    """
    ref = engine.registry.ref(session)
    asking = questions(engine, ref)
    found = address or _only(session, asking)
    if found not in asking:
        return _require_given(engine, ref, found, text)
    outcome = Outcome(word="succeeded", text=text, prompt=_question(engine, ref, found))
    answer = engine.answer(ref, found, outcome, fence=asking[found], by="person")
    if answer.word != "settled":
        _require_given(engine, ref, found, text)
    return None


def questions(engine: Engine, ref: SessionRef) -> dict[str, int]:
    """The steps that wait for a person, each with the fence that its answer carries."""
    parked = engine.store.members(ref, "parked", LOOKED_AT)
    return {
        address: record.fence
        for address, record in engine.store.steps(ref, parked).items()
        if record.parked is not None and record.parked.get("on") == "human"
    }


def _question(engine: Engine, ref: SessionRef, address: str) -> str | None:
    """What the step asks, for the transcript."""
    record = engine.store.steps(ref, [address]).get(address)
    question = record.parked.get("question") if record and record.parked else None
    return question if isinstance(question, str) else None


def _only(session: str, asking: dict[str, int]) -> str:
    if not asking:
        raise AnswerUnwanted(session, "none of its steps waits for a person")
    if len(asking) > 1:
        steps = ", ".join(sorted(asking))
        raise AnswerUnwanted(session, f"several of its steps wait; name one of: {steps}")
    return next(iter(asking))


def _require_given(engine: Engine, ref: SessionRef, address: str, text: str) -> None:
    """Raises AnswerUnwanted unless the step has had this very answer."""
    record = engine.store.steps(ref, [address]).get(address)
    if record is None:
        steps = ", ".join(sorted(questions(engine, ref))) or "none"
        hint = f"it has no step {address!r}; steps that wait for a person: {steps}"
        raise AnswerUnwanted(ref.id, hint)
    said = engine.store.values(ref, "out", [address]).get(address)
    program = engine.program(engine.registry.facts(ref).program)
    step = program.step_or_none(address)
    is_question = step is not None and step.action == "human"
    if is_question and said is not None and json.loads(said).get("text") == text:
        return
    why = f"step {address!r} is {record.state}"
    raise AnswerUnwanted(ref.id, f"{why}; another answer came first" if is_question else why)
