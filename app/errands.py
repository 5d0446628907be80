"""What one session owes another: told at once where that is possible, and by the sweep where not.

Every errand is in the store until it is done, and may be run any number of times.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from app.children import gone, outcome_of_child
from app.errors import ControlRefused, SessionStillRuns, SessionUnknown
from app.keys import SessionRef
from app.states import SessionStatus

if TYPE_CHECKING:
    from app.engine import Control, Engine

log = logging.getLogger(__name__)

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
    verb, session, root = errand.rstrip("|").split("|")
    ref = SessionRef(session, root)
    try:
        match verb:
            case "deliver":
                deliver(engine, ref)
            case "delete":
                engine.end_for_good(ref)
            case "forget":
                engine.delete(session)
            case "stop" | "resume" | "abort":
                _steer(engine, ref, verb)
            case _:
                log.warning("errand of an unknown kind", extra={"errand": errand})
    except (SessionUnknown, ControlRefused, SessionStillRuns):
        log.debug("errand is moot", extra={"errand": errand})
    engine.store.errand_done(errand)


def deliver(engine: Engine, child: SessionRef) -> None:
    """Tell the step that waits for a child session how that ended."""
    fields = engine.store.fields(child)
    parent = json.loads(fields.get("parent") or "{}")
    if not parent or fields.get("status") not in TOLD:
        return
    ref = SessionRef(parent["session"], child.root)
    step = engine.store.steps(ref, [parent["address"]]).get(parent["address"])
    if step is None or not step.parked or step.parked.get("child") != child.id:
        return
    outcome = outcome_of_child(child.id, fields)
    engine.answer(ref, parent["address"], outcome, fence=step.fence, by=child.id)


def look_at_child(engine: Engine, ref: SessionRef, address: str, *, child: str, fence: int) -> None:
    """A step has waited for a child for long: its word may have got lost, or the child itself."""
    if engine.store.fields(SessionRef(child, ref.root)):
        deliver(engine, SessionRef(child, ref.root))
    else:
        engine.answer(ref, address, gone(child), fence=fence, by=child)


def _steer(engine: Engine, child: SessionRef, verb: Control) -> None:
    """Let a child follow its parent, unless the parent has changed its mind meanwhile."""
    fields = engine.store.fields(child)
    parent = json.loads(fields.get("parent") or "{}")
    if parent and verb == "stop":
        above = engine.store.fields(SessionRef(parent["session"], child.root)).get("status")
        if above not in (SessionStatus.STOPPING, SessionStatus.STOPPED):
            return
    engine.control(child.id, verb, reason="its parent session did")
