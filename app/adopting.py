"""Lets a session that does not run go on by what its flow's file says now."""

from __future__ import annotations

import json
from typing import NamedTuple

from pydantic import JsonValue

from app import decide
from app.catalog import Catalog, hash_of
from app.errors import ControlRefused, QuotaPassed, SessionChanged, SessionUnknown
from app.fitting import why_unfit
from app.flow_sources import Source, run_of
from app.keys import SessionRef
from app.known import KnownOf
from app.program import Program
from app.records import Answer
from app.registry import Registry
from app.rewinding import rewound
from app.states import SessionStatus
from app.steering import Seen, way_out_of_spent
from app.store import Store
from app.submitting import Submitting
from app.transitions import Transitions
from leadhand.documents import Budget
from leadhand.flow_documents import FlowDocument, FlowRun

#: A session can take over another program while it is one of these: nothing of it runs.
AT_REST = (SessionStatus.STOPPED.value, SessionStatus.FAILED.value)
#: How often it is tried anew where the session changed between the look and the call.
LOOKS = 3


class _Wish(NamedTuple):
    """What the session must still be, and how the resume that follows is to go on."""

    seen: Seen | None
    after: str | None
    budget: Budget | None


class Adopting:
    """Swaps a session's program for the one that its flow's file makes today."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        transitions: Transitions,
        catalog: Catalog,
        submitting: Submitting,
    ) -> None:
        self._store = store
        self._registry = registry
        self._transitions = transitions
        self._catalog = catalog
        self._submitting = submitting

    def adopt(
        self,
        session: str,
        *,
        seen: Seen | None = None,
        after: str | None = None,
        budget: Budget | None = None,
    ) -> None:
        """The resume that follows goes on by the file as it is now.

        `after` and `budget` are what that resume will say: where it would be refused, nothing
        is taken over. Raises ControlRefused where the session is at work, of no file, has done
        what does not fit, or has used up its budget; PositionRefused, QuotaPassed as a resume
        does; FlowUnknown, FlowDisabled and InvalidDocument for a file that cannot be run.
        """
        ref = self._registry.ref(session)
        wish = _Wish(seen, after, budget)
        answer, looks = self._tried(ref, wish), 1
        while answer.word == "moved" and looks < LOOKS:
            answer, looks = self._tried(ref, wish), looks + 1
        self._registry.forget_facts()
        match answer.word:
            case "adopted":
                return
            case "unknown":
                raise SessionUnknown(session)
            case "quota":
                raise QuotaPassed("sessions", answer.limit or 0)
            case "refused":
                hint = way_out_of_spent(answer) if answer.text else "stop it first"
                raise _refused(ref, str(answer.status), hint)
            case _:
                raise SessionChanged(session, str(answer.status))

    def _tried(self, ref: SessionRef, wish: _Wish) -> Answer:
        fields = self._store.fields(ref)
        status = fields.get("status", "")
        if status not in AT_REST:
            raise _refused(ref, status, "only a stopped or failed one can go on by another file")
        if not fields.get("source"):
            raise _refused(ref, status, "it was not made of a flow of the catalog")
        began = Source.model_validate_json(fields["source"])
        written = self._catalog.document(began.flow)
        program = self._submitting.compiled(_as_run(written, began, fields))
        self._require_fit(ref, fields, program)
        if wish.after is not None:
            failed = status == SessionStatus.FAILED
            rewound(program, wish.after, KnownOf(self._store, ref), failed=failed)
        source = began.model_copy(update={"hash": hash_of(written)})
        arguments: dict[str, JsonValue] = {
            "program": program.hash,
            "from": list(AT_REST),
            "as_of": fields["updated"],
            "seen": wish.seen.as_stored() if wish.seen is not None else None,
            "budget": {**wish.budget.limits()} if wish.budget is not None else None,
            "routes": {path: json.dumps(route) for path, route in decide.routes(program).items()},
            "signature": self._registry.signature(
                ref, program.hash, cwd=fields.get("cwd", ""), place=fields["place"]
            ),
            "source": source.model_dump_json(),
            "adopts": True,
        }
        return self._store.run(
            "adopt", ref, program.hash, arguments, outcome=program.model_dump_json()
        )

    def _require_fit(self, ref: SessionRef, fields: dict[str, str], program: Program) -> None:
        old = self._registry.program(fields["program"])
        turns = self._store.turns(ref, self._store.names(ref, "turns"))
        why = why_unfit(old, program, self._store.names(ref, "steps"), turns)
        if why is not None:
            raise _refused(ref, fields["status"], f"{why}; resume it as old, or run the flow anew")


def _refused(ref: SessionRef, status: str, hint: str) -> ControlRefused:
    return ControlRefused(ref.id, "resume as new", status, hint)


def _as_run(written: FlowDocument, began: Source, fields: dict[str, str]) -> FlowDocument:
    run = FlowRun(
        working_folder=fields.get("cwd") or None,
        title=fields.get("label") or None,
        inputs=began.inputs,
        agents=began.agents,
        place=fields["place"] or None,
    )
    return run_of(written, run)
