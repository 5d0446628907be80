"""Resumes a stopped or failed session with the current version of its flow's file."""

from __future__ import annotations

from functools import partial

from pydantic import JsonValue

from app.catalog.flow_catalog import hash_of
from app.catalog.source import Source, apply_run
from app.compiler.subflows import types_in
from app.compiler.workspaces import own_folder_of
from app.domain.control import Seen
from app.domain.ids import SessionRef
from app.domain.program import Program
from app.domain.states import SessionStatus
from app.errors import InvalidDocument
from app.history.snapshot import Snapshot
from app.operations.control import SessionControl
from app.operations.registry import Registry
from app.operations.submit import Submissions
from app.resume.compatibility import can_switch_in_place, explain_misfit
from app.resume.plan import point_address, rewind_to, rewind_to_failure
from app.resume.rewind import Adoption, ResumePlan, Rewind
from app.store.store import Store
from leadhand.errors import ControlRefused
from leadhand.flows.documents import FlowDocument, FlowRun
from leadhand.models.documents import Budget
from leadhand.models.views.session import SessionView

#: Statuses in which a session can adopt another program: none of its steps run.
AT_REST = (SessionStatus.STOPPED.value, SessionStatus.FAILED.value)


class Migration:
    """Replaces a session's program with one compiled from the current flow file."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        control: SessionControl,
        submissions: Submissions,
    ) -> None:
        self._store = store
        self._registry = registry
        self._control = control
        self._submissions = submissions

    def resume_as_new(
        self,
        session: str,
        *,
        max_iterations: int | None = None,
        budget: Budget | None = None,
        after: str | None = None,
        seen: Seen | None = None,
        free: bool = True,
        accept_protected: bool = False,
    ) -> SessionView:
        """Resume a session with the current version of its flow file, and return its view.

        Raises the errors of a resume; ControlRefused also if the session has no flow file or its
        finished work does not fit; FlowUnknown, FlowDisabled and InvalidDocument if the file
        cannot be run.
        """
        return self._control.apply(
            session,
            "resume",
            max_iterations=max_iterations,
            budget=budget,
            after=after,
            seen=seen,
            planner=partial(self._plan, free=free),
            free=free,
            accept_protected=accept_protected,
        )

    def _plan(self, ref: SessionRef, after: str | None, *, free: bool) -> ResumePlan:
        """Plans the resume: the new program, and the nodes that run again."""
        fields = self._store.fields(ref)
        status = fields.get("status", "")
        if status not in AT_REST:
            raise _refusal(ref, status, "only a stopped or failed session can adopt another file")
        if not fields.get("source"):
            raise _refusal(ref, status, "it was not started from a flow of the catalog")
        began = Source.model_validate_json(fields["source"])
        found = self._submissions.definitions.again(ref, fields, free=free)
        catalog = self._submissions.catalog_of(found.folder, found.free and free)
        written = catalog.document(began.flow)
        own = own_folder_of(self._registry.program(fields["program"]), root="")
        cwd = fields.get("cwd", "") if own is None else own.origin
        document = _with_run_options(written, began, fields | {"cwd": cwd})
        _require_inputs(document)
        program = self._submissions.compile_flow(
            document, found, own, is_child=bool(fields.get("parent"))
        )
        failed = status == SessionStatus.FAILED
        afresh = failed or not self._can_switch(ref, fields, program)
        rewind = self._rewind(ref, fields, program, after=after, afresh=afresh)
        pinned = (
            {}
            if afresh or rewind is not None
            else self._pinned_children(ref, fields, program, began)
        )
        adopted = {"hash": hash_of(written), "limits": written.budget.limits(), "kept": pinned}
        source = began.model_copy(update=adopted)
        limits = (
            began.limits_now(written, self._submissions.default_limits(program))
            if began.hash != source.hash
            else {}
        )
        signature = self._registry.signature(
            ref,
            program.hash,
            cwd=fields.get("cwd", ""),
            place=fields["place"],
            environment=fields.get("environment", ""),
            definitions=fields.get("definitions", ""),
        )
        known = Snapshot(self._store, ref)
        return ResumePlan(
            rewind=rewind,
            as_of=fields["updated"],
            after=None if after is None else point_address(program, after, known),
            adopts=Adoption(program, signature, source.model_dump_json(), afresh=afresh),
            limits=limits,
        )

    def _pinned_children(
        self, ref: SessionRef, fields: dict[str, str], program: Program, began: Source
    ) -> dict[str, str]:
        """The active child sessions whose flow differs in the new program, by step."""
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

    def _can_switch(self, ref: SessionRef, fields: dict[str, str], program: Program) -> bool:
        """Whether a stopped session can switch to the program without a rewind."""
        turns = self._store.turns(ref, self._store.names(ref, "turns"))
        steps = self._store.names(ref, "steps")
        old = self._registry.program(fields["program"])
        return can_switch_in_place(old, program, steps, turns, Snapshot(self._store, ref))

    def _rewind(
        self,
        ref: SessionRef,
        fields: dict[str, str],
        program: Program,
        *,
        after: str | None,
        afresh: bool,
    ) -> Rewind | None:
        known = Snapshot(self._store, ref)
        if after is not None:
            rewind = rewind_to(program, after, known, failed=afresh)
        else:
            rewind = rewind_to_failure(program, known) if afresh else None
        if rewind is None or not afresh:
            return rewind
        old = self._registry.program(fields["program"])
        why = explain_misfit(old, program, rewind, known, after=after is not None)
        if why is not None:
            raise _refusal(
                ref, fields["status"], f"{why}; resume it as old, or start a new run of the flow"
            )
        return rewind.without_kept_items()  # the step may be another one now


def _flow_of(program: Program, address: str) -> JsonValue:
    step = program.step_or_none(address)
    return step.inputs.get("document") if step is not None else None


def _refusal(ref: SessionRef, status: str, hint: str) -> ControlRefused:
    return ControlRefused(ref.id, "resume as new", status, hint)


def _require_inputs(document: FlowDocument) -> None:
    """Raises InvalidDocument for an input that was added to the file and has no default."""
    for name, text in document.inputs.items():
        if text is None:
            hint = "this run has no value for it; add a default to the file, or start a new run"
            raise InvalidDocument(f"inputs.{name}", None, hint)


def _with_run_options(written: FlowDocument, began: Source, fields: dict[str, str]) -> FlowDocument:
    types = types_in(written) | {"*"}  # removed agentTypes need no agent
    run = FlowRun(
        working_folder=fields.get("cwd") or None,
        title=fields.get("label") or None,
        inputs={**began.inputs},
        agents={type_: name for type_, name in began.agents.items() if type_ in types},
        place=fields["place"] or None,
    )
    return apply_run(written, run)
