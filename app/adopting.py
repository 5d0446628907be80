"""Lets a session that does not run go on by what its flow's file says now."""

from __future__ import annotations

import json

from pydantic import JsonValue

from app import decide
from app.catalog import Catalog, hash_of
from app.errors import ControlRefused, InvalidDocument
from app.fitting import goes_on_as_it_stands, why_unfit
from app.flow_sources import Source, run_of
from app.frontends.flow_children import types_in
from app.keys import SessionRef
from app.known import KnownOf
from app.program import Program
from app.registry import Registry
from app.rewinding import Rewind, address_named, gone_on, rewound
from app.states import SessionStatus
from app.steering import Seen, Steering
from app.store import Store
from app.submitting import Submitting
from app.views import SessionView
from leadhand.documents import Budget
from leadhand.flow_documents import FlowDocument, FlowRun

#: A session can take over another program while it is one of these: nothing of it runs.
AT_REST = (SessionStatus.STOPPED.value, SessionStatus.FAILED.value)


class Adopting:
    """Swaps a session's program for the one that its flow's file makes today, as it is resumed."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        steering: Steering,
        catalog: Catalog,
        submitting: Submitting,
    ) -> None:
        self._store = store
        self._registry = registry
        self._steering = steering
        self._catalog = catalog
        self._submitting = submitting

    def resume_as_new(
        self,
        session: str,
        *,
        max_iterations: int | None = None,
        budget: Budget | None = None,
        after: str | None = None,
        seen: Seen | None = None,
    ) -> SessionView:
        """Resume by the file as it is now: both in one transition, or neither.

        Raises what a resume does; ControlRefused too where the session is of no file, or has done
        what does not fit; FlowUnknown, FlowDisabled and InvalidDocument for a file that cannot be
        run.
        """
        return self._steering.control(
            session,
            "resume",
            max_iterations=max_iterations,
            budget=budget,
            after=after,
            seen=seen,
            plan=self._planned,
        )

    def _planned(self, ref: SessionRef, after: str | None) -> dict[str, JsonValue]:
        """What the script is told: the new program, and what of it runs anew."""
        fields = self._store.fields(ref)
        status = fields.get("status", "")
        if status not in AT_REST:
            raise _refused(ref, status, "only a stopped or failed one can go on by another file")
        if not fields.get("source"):
            raise _refused(ref, status, "it was not made of a flow of the catalog")
        began = Source.model_validate_json(fields["source"])
        written = self._catalog.document(began.flow)
        document = _as_run(written, began, fields)
        _require_inputs(document)
        program = self._submitting.compiled(document)
        failed = status == SessionStatus.FAILED
        afresh = failed or not self._stands(ref, fields, program)
        rewind = self._rewind(ref, fields, program, after=after, afresh=afresh)
        kept = {} if afresh or rewind is not None else self._kept(ref, fields, program, began)
        taken = {"hash": hash_of(written), "limits": written.budget.limits(), "kept": kept}
        source = began.model_copy(update=taken)
        limits = (
            began.limits_now(written, self._submitting.usual_limits(program))
            if began.hash != source.hash
            else {}
        )
        adopts: dict[str, JsonValue] = {
            "program": program.hash,
            "document": program.model_dump_json(),
            "routes": {path: json.dumps(route) for path, route in decide.routes(program).items()},
            "signature": self._registry.signature(
                ref, program.hash, cwd=fields.get("cwd", ""), place=fields["place"]
            ),
            "source": source.model_dump_json(),
            "schema": str(program.schema_version),
            "afresh": afresh,
        }
        told: dict[str, JsonValue] = {
            "as_of": fields["updated"],
            "adopts": adopts,
            "budget": {**limits},
        }
        if after is not None:
            told["after"] = address_named(program, after, KnownOf(self._store, ref))
        return told | (rewind._asdict() if rewind is not None else {})

    def _kept(
        self, ref: SessionRef, fields: dict[str, str], program: Program, began: Source
    ) -> dict[str, str]:
        """The child sessions under way that are of another flow than would be begun now."""
        old = self._registry.program(fields["program"])
        found = {}
        for address, record in self._store.steps(ref, self._store.members(ref, "parked")).items():
            child = (record.parked or {}).get("child")
            if child is not None and (
                began.kept.get(address) == child
                or _flow_of(old, address) != _flow_of(program, address)
            ):
                found[address] = str(child)
        return found

    def _stands(self, ref: SessionRef, fields: dict[str, str], program: Program) -> bool:
        """Whether a stopped session could go on where it stands."""
        turns = self._store.turns(ref, self._store.names(ref, "turns"))
        steps = self._store.names(ref, "steps")
        old = self._registry.program(fields["program"])
        return goes_on_as_it_stands(old, program, steps, turns, KnownOf(self._store, ref))

    def _rewind(
        self,
        ref: SessionRef,
        fields: dict[str, str],
        program: Program,
        *,
        after: str | None,
        afresh: bool,
    ) -> Rewind | None:
        known = KnownOf(self._store, ref)
        if after is not None:
            rewind = rewound(program, after, known, failed=afresh)
        else:
            rewind = gone_on(program, known) if afresh else None
        if rewind is None or not afresh:
            return rewind
        old = self._registry.program(fields["program"])
        why = why_unfit(old, program, rewind, known, after=after is not None)
        if why is not None:
            raise _refused(ref, fields["status"], f"{why}; resume it as old, or run the flow anew")
        return rewind


def _flow_of(program: Program, address: str) -> JsonValue:
    step = program.step_or_none(address)
    return step.inputs.get("document") if step is not None else None


def _refused(ref: SessionRef, status: str, hint: str) -> ControlRefused:
    return ControlRefused(ref.id, "resume as new", status, hint)


def _require_inputs(document: FlowDocument) -> None:
    """A run is given its inputs at its start: what the file asks for since, the file must say."""
    for name, text in document.inputs.items():
        if text is None:
            hint = "this run was begun without it; give it a default in the file, or run it anew"
            raise InvalidDocument(f"inputs.{name}", None, hint)


def _as_run(written: FlowDocument, began: Source, fields: dict[str, str]) -> FlowDocument:
    types = types_in(written) | {"*"}  # one that the file has no more needs nobody
    run = FlowRun(
        working_folder=fields.get("cwd") or None,
        title=fields.get("label") or None,
        inputs=began.inputs,
        agents={type_: name for type_, name in began.agents.items() if type_ in types},
        place=fields["place"] or None,
    )
    return run_of(written, run)
