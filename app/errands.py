"""What one session owes another: told at once where that is possible, and by the sweep where not.

Every errand is in the store until it is done, and may be run any number of times.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from app.archive import keep
from app.children import gone, outcome_of_child
from app.errors import (
    ControlRefused,
    ExportOwed,
    SessionChanged,
    SessionStillRuns,
    SessionUnknown,
)
from app.keys import SessionRef
from app.program import Action
from app.records import StepRecord
from app.states import SessionStatus
from app.steering import PARENT_DID, Seen

if TYPE_CHECKING:
    from app.engine import Control, Engine

log = logging.getLogger(__name__)

#: What may be owed. Another word is a newer version's, which may be the next to sweep.
VERBS = ("deliver", "delete", "forget", "stop", "resume", "abort")
#: How long what a newer version has to look at is left alone.
NEWER_MS = 2_000
#: A child that is one of these will not go on by itself: its parent's step is told. One that is
#: stopped may be resumed, so its parent waits.
TOLD = (
    SessionStatus.COMPLETED,
    SessionStatus.FAILED,
    SessionStatus.EXITED,
    SessionStatus.ABORTED,
)


def run_errand(engine: Engine, errand: str) -> None:
    """Do what is owed, and take it off the list; what cannot matter any more is done."""
    seen = engine.store.errand_seen(errand)
    if seen is None:
        return
    if errand.partition("|")[0] not in VERBS:
        log.info("left to a newer version", extra={"errand": errand})
        engine.store.put_off("errands", errand, NEWER_MS)
        return
    verb, session, root = errand.rstrip("|").split("|")
    try:
        _do(engine, verb, SessionRef(session, root), seen)
    except SessionChanged:
        return  # what it is now is looked at in the next round
    except (SessionUnknown, ControlRefused, SessionStillRuns):
        log.debug("errand is moot", extra={"errand": errand})
    engine.store.errand_done(errand, seen)


def _do(engine: Engine, verb: str, ref: SessionRef, seen: float) -> None:
    match verb:
        case "deliver":
            deliver(engine, ref)
        case "delete":
            engine.end_for_good(ref)
        case "forget":
            _forget(engine, ref, seen)
        case "stop" | "resume" | "abort":
            _steer(engine, ref, verb)
        case _:
            raise AssertionError(verb)


def _forget(engine: Engine, ref: SessionRef, seen: float) -> None:
    """A session's time is over; where its export is owed, that is written first.

    Whoever resumes it takes the errand back, at any moment until it is gone.
    """
    fields = engine.store.fields(ref)
    if "status" not in fields or engine.store.errand_seen(f"forget|{ref.member}") != seen:
        return
    if fields.get("export"):
        try:
            keep(engine.export(ref.id), engine.settings.export_dir)
        except ExportOwed as error:
            if engine.settings.export_dir is not None:
                engine.store.fleet().owe(ref.id, error.why)
            raise
    engine.delete(ref.id, seen=Seen(fields["status"], int(fields["updated"])))


def deliver(engine: Engine, child: SessionRef) -> None:
    """Tell a parent that its child has stopped or ended, and the step that waits for it how."""
    fields = engine.store.fields(child)
    parent = json.loads(fields.get("parent") or "{}")
    if parent:
        with suppress(SessionUnknown):  # it was deleted, and hears nothing any more
            _tell(engine, child, fields, parent)


def _tell(
    engine: Engine, child: SessionRef, fields: Mapping[str, str], parent: Mapping[str, str]
) -> None:
    ref = SessionRef(parent["session"], child.root)
    if fields.get("status") in TOLD:
        step = _waiting(engine, child, parent)
        if fields["status"] == SessionStatus.EXITED and _is_of_a_doer(engine, ref, parent):
            with suppress(ControlRefused):  # the attempt that began it works no more
                engine.steering.exit_of_child(ref, parent, child.id, fields.get("reason"))
        if step is not None:
            outcome = outcome_of_child(child.id, fields)
            engine.answer(
                ref, parent["address"], outcome, fence=step.fence, by=child.id, child=child.id
            )
    engine.poke(ref, parent["address"], child=child.id)


def _is_of_a_doer(engine: Engine, ref: SessionRef, parent: Mapping[str, str]) -> bool:
    """Whether a child was begun by a body; one of a step that is nothing else is a subflow."""
    program = engine.registry.program(engine.registry.facts(ref).program)
    step = program.step_or_none(parent["address"])
    return step is not None and step.action is not Action.CHILD


def look_at_child(engine: Engine, ref: SessionRef, address: str, *, child: str, fence: int) -> None:
    """A step has waited for a child for long: its word may have got lost, or the child itself."""
    if engine.store.fields(SessionRef(child, ref.root)):
        deliver(engine, SessionRef(child, ref.root))
    else:
        engine.answer(ref, address, gone(child), fence=fence, by=child)


def parent_of(engine: Engine, child: SessionRef) -> dict[str, str]:
    """The session and the step that began a child; nothing where nobody did."""
    found: dict[str, str] = json.loads(engine.store.fields(child).get("parent") or "{}")
    return found


def is_unheard(engine: Engine, child: SessionRef, parent: Mapping[str, str]) -> bool:
    """Whether a child's word is still owed to the session that began it."""
    if engine.store.errand_seen(f"deliver|{child.member}") is not None:
        return True
    return _waiting(engine, child, parent) is not None


def tell_of_deletion(engine: Engine, child: SessionRef, parent: Mapping[str, str]) -> None:
    """A child was deleted: the step that waits for it is told, unless it has heard already."""
    step = _waiting(engine, child, parent)
    if step is not None:
        ref = SessionRef(parent["session"], child.root)
        look_at_child(engine, ref, parent["address"], child=child.id, fence=step.fence)


def _waiting(engine: Engine, child: SessionRef, parent: Mapping[str, str]) -> StepRecord | None:
    """The step that waits for a child; None where it does not, or no more."""
    ref, address = SessionRef(parent["session"], child.root), parent["address"]
    step = engine.store.steps(ref, [address]).get(address)
    waits = step is not None and step.parked and step.parked.get("child") == child.id
    return step if waits else None


def _steer(engine: Engine, child: SessionRef, verb: Control) -> None:
    """Let a child follow its parent, unless the parent has changed its mind meanwhile."""
    fields = engine.store.fields(child)
    parent = json.loads(fields.get("parent") or "{}")
    reason = json.loads(fields.get("reason") or "{}")
    if verb == "resume" and reason.get("text") != PARENT_DID:
        return  # a user stopped it, and may resume it
    if verb == "abort":
        engine.abort_below(child)
        return
    if not parent:
        engine.control(child.id, verb, reason=PARENT_DID)
        return
    engine.follow(child, verb, SessionRef(parent["session"], child.root), _MEANT[verb])


#: What a parent is as long as it means its children to stop, or to go on.
_MEANT = {
    "stop": (SessionStatus.STOPPING, SessionStatus.STOPPED),
    "resume": (SessionStatus.ACTIVE,),
}
