"""A person's answer finds the step that asked for it; the first answer counts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from app.errors import AnswerUnwanted
from app.flow_positions import steps_at
from app.keys import SessionRef
from app.outcomes import Outcome
from app.pictures import iso
from app.program import Action, Program, path_of
from app.records import StepRecord

if TYPE_CHECKING:
    from app.engine import Engine

#: Who answers where nobody does in time.
DEADLINE = "deadline"
#: Zero-based positions in a flow's file; an iteration is named by its address.
_PLACE = re.compile(r"^\d+(/\d+)*$")
#: How many parked steps are looked at where none is named.
LOOKED_AT = 1000
#: How deep below a session questions are looked for.
DEPTH = 5


def give_answer(engine: Engine, session: str, text: str, address: str | None, *, by: str) -> None:
    """Settle the step that asked. Raises SessionUnknown, AnswerUnwanted.

    The same answer to the same step again is no other answer. Where no step asks and none is named,
    the one is meant that was answered last: somebody else was faster.
    """
    ref = engine.registry.ref(session)
    asking = questions(engine, ref)
    if address is None:
        found = _only(session, asking) or _answered_last(engine, ref)
    else:
        found = _named(engine, ref, address, asking)
    if found is None:
        raise AnswerUnwanted(session, _nobody_asks(engine, ref))
    if found not in asking:
        return _require_given(engine, ref, found, text)
    outcome = Outcome(word="succeeded", text=text, prompt=_question(engine, ref, found))
    answer = engine.answer(ref, found, outcome, fence=asking[found], by=by)
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


def _nobody_asks(engine: Engine, ref: SessionRef) -> str:
    """What to say where no step of the session asks; those of its child sessions may."""
    hint = "none of its steps waits for a person"
    asking = sorted(child.id for child in _below(engine, ref) if questions(engine, child))
    if not asking:
        return hint
    return f"{hint}, but of the sessions below it: answer {', '.join(asking)}"


def _below(engine: Engine, ref: SessionRef, deeper: int = DEPTH) -> Iterator[SessionRef]:
    """The sessions for which its steps wait, and theirs."""
    parked = engine.store.members(ref, "parked", LOOKED_AT)
    for record in engine.store.steps(ref, parked).values():
        child = (record.parked or {}).get("child")
        if isinstance(child, str):
            yield SessionRef(child, ref.root)
            if deeper:
                yield from _below(engine, SessionRef(child, ref.root), deeper - 1)


def _question(engine: Engine, ref: SessionRef, address: str) -> str | None:
    """What the step asks, for the transcript."""
    record = engine.store.steps(ref, [address]).get(address)
    question = record.parked.get("question") if record and record.parked else None
    return question if isinstance(question, str) else None


def _only(session: str, asking: dict[str, int]) -> str | None:
    if not asking:
        return None
    if len(asking) > 1:
        raise _several(session, asking)
    return next(iter(asking))


def _several(session: str, asking: Iterable[str]) -> AnswerUnwanted:
    steps = ", ".join(sorted(asking))
    return AnswerUnwanted(session, f"several of its steps wait; name one of: {steps}")


def _named(engine: Engine, ref: SessionRef, said: str, asking: Iterable[str]) -> str:
    """The address of the question that is called so: one that waits, or the last that did."""
    if said in asking:
        return said
    program = engine.program(engine.registry.facts(ref).program)
    waiting = [address for address in asking if _is_called(program, address, said)]
    if len(waiting) > 1:
        raise _several(ref.id, waiting)
    if waiting:
        return waiting[0]
    if _is_question(program, said) and said in engine.store.steps(ref, [said]):
        return said
    had = [a for a in engine.store.names(ref, "steps") if _is_called(program, a, said)]
    records = engine.store.steps(ref, [a for a in had if _is_question(program, a)])
    return max(records, key=lambda address: records[address].ended or 0, default=said)


def _is_called(program: Program, address: str, said: str) -> bool:
    """Whether a step goes by this label, this address without runs, or this place in its file."""
    step = program.step_or_none(address)
    if step is None:
        return False
    if said in (step.label, path_of(address)):
        return True
    places = steps_at(program, said.split("/")) if _PLACE.match(said) else []
    return step.origin is not None and step.origin.path in places


def _answered_last(engine: Engine, ref: SessionRef) -> str | None:
    """The question that was answered last, if there was any."""
    program = engine.program(engine.registry.facts(ref).program)
    asked = [one for one in engine.store.names(ref, "steps") if _is_question(program, one)]
    records = engine.store.steps(ref, asked)
    given = {one: record.ended or 0 for one, record in records.items() if record.answered_by}
    return max(given, key=lambda one: given[one], default=None)


def _is_question(program: Program, address: str) -> bool:
    step = program.step_or_none(address)
    return step is not None and step.action is Action.HUMAN


def _require_given(engine: Engine, ref: SessionRef, address: str, text: str) -> None:
    """Raises AnswerUnwanted unless the step has had this very answer."""
    record = engine.store.steps(ref, [address]).get(address)
    if record is None:
        steps = ", ".join(sorted(questions(engine, ref))) or "none"
        hint = f"it has no step {address!r}; steps that wait for a person: {steps}"
        raise AnswerUnwanted(ref.id, hint)
    said = engine.store.values(ref, "out", [address]).get(address)
    program = engine.program(engine.registry.facts(ref).program)
    if not _is_question(program, address) or record.answered_by is None:
        raise AnswerUnwanted(ref.id, f"step {address!r} is {record.state}")
    if said is not None and json.loads(said).get("text") == text:
        return
    raise AnswerUnwanted(ref.id, _who_was_first(address, record))


def _who_was_first(address: str, record: StepRecord) -> str:
    """Who answered a question, and when."""
    at = f" at {iso(record.ended)}" if record.ended else ""
    if record.answered_by == DEADLINE:
        return f"step {address!r} is {record.state}: its time to be answered was over{at}"
    return f"another answer came first: step {address!r} was answered by {record.answered_by}{at}"
