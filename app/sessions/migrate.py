"""Resumes a session with the current version of its flow's file, if its program allows that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from pydantic import JsonValue

from app.compiler.folders import own_folder_of
from app.compiler.subflows import types_in
from app.core.addresses import SessionRef, block_of, path_of, within
from app.core.program import Loop, Node, Program, Step, needs_of, sinks_of
from app.core.records import TurnRecord
from app.core.states import Seen, SessionStatus
from app.errors import InvalidDocument
from app.fleet.flow_catalog import hash_of
from app.fleet.flow_tools import Source, apply_run
from app.history.points import At, Known, is_done, newest
from app.history.records import Snapshot
from app.programs import Registry
from app.sessions.control import SessionControl
from app.sessions.resume import point_address, rewind_to, rewind_to_failure, used_its_iterations
from app.sessions.rewind import Adoption, ResumePlan, Rewind
from app.sessions.submit import Submissions
from app.store.store import Store
from leadhand.errors import ControlRefused
from leadhand.flows.documents import FlowDocument, FlowRun
from leadhand.models.documents import Budget
from leadhand.models.views.session import SessionView

#: Fields of a started step that the new program may change: its inputs and limits.
_FREE = {"inputs", "label", "origin", "timeout_s", "retry", "limits", "critical", "queue", "quick",
         "folder", "conversation", "needs"}  # fmt: skip
#: The name of a block's end, which waits for the block's sinks.
_END = ""
#: Statuses in which a session can adopt another program: none of its steps run.
AT_REST = (SessionStatus.STOPPED.value, SessionStatus.FAILED.value)


def can_switch_in_place(
    old: Program,
    new: Program,
    steps: Iterable[str],
    turns: Mapping[str, TurnRecord],
    known: Known,
) -> bool:
    """Whether a stopped session can continue with the new program without repeating steps.

    In each open block, the nodes that have started must be the first ones of the new block, and all
    others must still be reachable. Closed blocks, and nodes that have not started, may differ.
    """
    begun: dict[str, set[str]] = {}
    for address in (*steps, *(turn for turn in turns if turn)):
        begun.setdefault(block_of(address), set()).add(path_of(address).rpartition("/")[2])
    open_turns = {id_: turn for id_, turn in turns.items() if not id_ or _is_open(turn)}
    blocks = {f"{id_}[{t.iteration}]" if id_ else "": t for id_, t in open_turns.items()}
    return all(
        _has_same_start(old, new, path_of(block), begun.get(block, set()))
        # No node starts in a turn that is ending.
        and (turn.state != "open" or _will_be_reached(old, new, block, known))
        for block, turn in blocks.items()
    )


def _is_open(turn: TurnRecord) -> bool:
    return turn.state != "closed" and not turn.each


def _has_same_start(old: Program, new: Program, path: str, begun: set[str]) -> bool:
    was, now = _body(old, path), _body(new, path)
    if was is None or now is None:
        return False
    before, after = needs_of(was), needs_of(now)
    done = [node for node in was if node.id in begun]
    return len(done) <= len(now) and all(
        node.id == other.id and _shape(node) == _shape(other) and before[node.id] == after[node.id]
        for node, other in zip(done, now, strict=False)
    )


def _will_be_reached(old: Program, new: Program, block: str, known: Known) -> bool:
    """Whether every node of an open block that has not started will still be released.

    Nodes are released when one of their needs ends, and arrivals are recorded under the program of
    that time. A node whose needs have all ended already would wait for ever. The same may happen if
    other needs have ended than have arrived.
    """
    was, now = _body(old, path_of(block)), _body(new, path_of(block))
    if was is None or now is None:
        return False
    begun = {node.id for node in (*was, *now) if _has_record(known, node, block)}
    if begun - {node.id for node in was}:
        return False  # its record is from an earlier program
    ended = {node.id for node in was if _has_ended(known, node, block)}
    before = needs_of(was) | {_END: sinks_of(was)}
    after = needs_of(now) | {_END: sinks_of(now)}
    for name in (before.keys() | after.keys()) - begun:
        arrived = ended.intersection(before.get(name, ()))
        if arrived != ended.intersection(after.get(name, ())):
            return False
        if name in after and arrived == set(after[name]):
            return False
    return True


def _has_record(known: Known, node: Node, block: str) -> bool:
    address = newest(known, node, block)
    step = known.step(address) if isinstance(node, Step) else None
    return step is not None or known.turn(address) is not None


def _has_ended(known: Known, node: Node, block: str) -> bool:
    """Whether a node of an open block has ended, and so has arrived at its successors."""
    address = newest(known, node, block)
    turn = known.turn(address)
    if turn is not None:
        return turn.state == "closed"
    step = known.step(address) if isinstance(node, Step) else None
    return step is not None and step.state in ("succeeded", "failed", "skipped")


def explain_misfit(
    old: Program, new: Program, rewind: Rewind, known: Known, *, after: bool
) -> str | None:
    """Explains why the finished work does not fit the new program; None if it fits.

    `rewind` is the plan under the new program. Nodes that count as done must exist there with the
    same kind and the same needs. Without a named point (`after`), all finished nodes must count.
    Unfinished nodes may be changed or removed.
    """
    for block, kept, entered in _blocks(new, rewind):
        path = path_of(block)
        was, now = _body(old, path), _body(new, path)
        if was is None or now is None:
            return f"it is in the loop {path!r}, which is no longer there"
        for node in was:
            counts = node.id in kept or node.id == entered
            if counts or (not after and _holds_finished_work(known, node, block)):
                why = _misfit(node, was, now, within(path, node.id))
                if why is not None:
                    return why
    return None


def _blocks(new: Program, rewind: Rewind) -> Iterable[tuple[str, set[str], str | None]]:
    """Yields each open block: its address, the nodes done in it, and the loop entered in it."""
    entered: list[str | None] = [*(level.node for level in rewind.levels), None]
    anew = {join.name for join in rewind.again}
    outermost = {node.id for node in new.body} - anew
    yield "", outermost, entered[0]
    for level, inner in zip(rewind.levels, entered[1:], strict=True):
        yield At(level.run, level.iteration).block, set(level.kept), inner


def _holds_finished_work(known: Known, node: Node, block: str) -> bool:
    """Whether a node holds finished work that would be repeated."""
    if is_done(known, node, block):
        return True
    turn = known.turn(newest(known, node, block)) if isinstance(node, Loop) else None
    if turn is None or turn.iteration == 0 or used_its_iterations(turn):
        return False
    assert isinstance(node, Loop)
    inside = f"{newest(known, node, block)}[1]"
    return turn.iteration > 1 or any(
        _holds_finished_work(known, inner, inside) for inner in node.body
    )


def _misfit(node: Node, was: tuple[Node, ...], now: tuple[Node, ...], here: str) -> str | None:
    other = next((one for one in now if one.id == node.id), None)
    what = f"loop {here!r} was entered" if isinstance(node, Loop) else f"step {here!r} is done"
    if other is None:
        return f"{what}, and is no longer there"
    if _shape(node) != _shape(other):
        return f"{what}, and has another kind now"
    before, needs = set(needs_of(was)[node.id]), needs_of(now)[node.id]
    if before != set(needs):
        new = next((need for need in needs if need not in before), None)
        return f"{what}, and now needs {new!r}" if new else f"{what}, and comes first now"
    return None


def _body(program: Program, path: str) -> tuple[Node, ...] | None:
    if not path:
        return program.body
    node = program.node(path) if program.has(path) else None
    return node.body if isinstance(node, Loop) else None


def _shape(node: Node) -> dict[str, object]:
    if isinstance(node, Step):
        return node.model_dump(exclude=_FREE)
    return {"kind": node.kind, "id": node.id, "given": node.given}


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
