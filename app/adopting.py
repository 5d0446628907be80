"""Lets a session that does not run go on by what its flow's file says now."""

from __future__ import annotations

import json

from pydantic import JsonValue

from app import decide
from app.catalog import Catalog, hash_of
from app.errors import ControlRefused, SessionChanged, SessionUnknown
from app.fitting import why_unfit
from app.flow_sources import Source, run_of
from app.keys import SessionRef
from app.program import Program
from app.records import Answer
from app.registry import Registry
from app.states import SessionStatus
from app.steering import Seen
from app.store import Store
from app.submitting import Submitting
from app.transitions import Transitions
from leadhand.flow_documents import FlowDocument, FlowRun

#: A session can take over another program while it is one of these: nothing of it runs.
AT_REST = (SessionStatus.STOPPED.value, SessionStatus.FAILED.value)
#: How often it is tried anew where the session changed between the look and the call.
LOOKS = 3


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

    def adopt(self, session: str, *, seen: Seen | None = None) -> None:
        """Resume goes on by the file as it is now.

        Raises ControlRefused where it is at work, of no file, or has done what does not fit;
        FlowUnknown, FlowDisabled and InvalidDocument for a file that cannot be run.
        """
        ref = self._registry.ref(session)
        answer, looks = self._tried(ref, seen), 1
        while answer.word == "moved" and looks < LOOKS:
            answer, looks = self._tried(ref, seen), looks + 1
        self._registry.forget_facts()
        match answer.word:
            case "adopted":
                return
            case "unknown":
                raise SessionUnknown(session)
            case "refused":
                raise _refused(ref, str(answer.status), "stop it first")
            case _:
                raise SessionChanged(session, str(answer.status))

    def _tried(self, ref: SessionRef, seen: Seen | None) -> Answer:
        fields = self._store.fields(ref)
        status = fields.get("status", "")
        if status not in AT_REST:
            raise _refused(ref, status, "only a stopped or failed one can go on by another file")
        if not fields.get("source"):
            raise _refused(ref, status, "it was not made of a flow of the catalog")
        began = Source.model_validate_json(fields["source"])
        document = self._document(began, fields)
        program = self._submitting.compiled(document)
        self._require_fit(ref, fields, program)
        source = began.model_copy(update={"hash": hash_of(document)})
        arguments: dict[str, JsonValue] = {
            "program": program.hash,
            "from": list(AT_REST),
            "as_of": fields["updated"],
            "seen": seen.as_stored() if seen is not None else None,
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

    def _document(self, began: Source, fields: dict[str, str]) -> FlowDocument:
        run = FlowRun(
            working_folder=fields.get("cwd") or None,
            title=fields.get("label") or None,
            inputs=began.inputs,
            agents=began.agents,
            place=fields["place"] or None,
        )
        return run_of(self._catalog.document(began.flow), run)

    def _require_fit(self, ref: SessionRef, fields: dict[str, str], program: Program) -> None:
        old = self._registry.program(fields["program"])
        turns = self._store.turns(ref, self._store.names(ref, "turns"))
        why = why_unfit(old, program, self._store.names(ref, "steps"), turns)
        if why is not None:
            raise _refused(ref, fields["status"], f"{why}; resume it as old, or run the flow anew")


def _refused(ref: SessionRef, status: str, hint: str) -> ControlRefused:
    return ControlRefused(ref.id, "resume as new", status, hint)
