"""Skips a step of a session, or runs it again with all that depends on it."""

from __future__ import annotations

import secrets
from functools import partial
from typing import NamedTuple

from pydantic import JsonValue

from app.compiler.plan import EXECUTE
from app.core import routing
from app.core.addresses import SessionRef, block_of, path_of, within
from app.core.program import Action, Loop, Node, Program
from app.core.routing import step_is_done, turn_is_done
from app.core.states import FINAL, Seen, SessionStatus
from app.errors import PositionRefused
from app.history.points import Item, address_of, item_of, newest_position, nodes_of_step
from app.history.records import Snapshot
from app.programs import Registry
from app.security.signatures import Caller
from app.sessions.control import PLANS, SessionControl
from app.sessions.queries import Queries
from app.sessions.resume import rewind_before
from app.sessions.rewind import ResumePlan, SkippedNode
from app.store.store import Store
from app.transitions import Transitions
from leadhand.errors import ControlRefused, SessionChanged, SessionUnknown
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.session import SessionView

#: The verb, as refusals name it.
VERB = "skip a step of"
#: Statuses in which a step that has not run can be skipped.
_OPEN = (SessionStatus.ACTIVE, SessionStatus.STOPPED, SessionStatus.FAILED)
#: Statuses in which nodes can get a next run.
_RESTS = (SessionStatus.STOPPED, SessionStatus.FAILED)


class _Target(NamedTuple):
    """A node that is to be skipped, and what became of its newest run."""

    node: Node
    address: str
    #: pending, ready, parked, running, open, skipped, done, or ended (without being done).
    state: str

    #: The number of an item of a for_each, from 1; None for the node as a whole.
    item: int | None = None

    @property
    def name(self) -> str:
        """The node, or its item, in its block."""
        return self.node.id if self.item is None else f"{self.node.id}#{self.item}"

    @property
    def place(self) -> str:
        """The node or item at its address, without its run."""
        address = self.address.rpartition("#")[0] if self.item is not None else self.address
        return within(block_of(address), self.name)

    def lists(self, program: Program) -> tuple[str, ...]:
        """The for_each nodes whose list it makes."""
        return (
            () if self.item is not None else tuple(routing.widths(program, path_of(self.address)))
        )


class Skip:
    """Settles steps as skipped, or gives them a next run that is skipped."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        transitions: Transitions,
        control: SessionControl,
        queries: Queries,
    ) -> None:
        self._store = store
        self._registry = registry
        self._transitions = transitions
        self._control = control
        self._queries = queries

    def skip(
        self,
        session: str,
        step: str,
        *,
        reason: str = "",
        author: str = "a user",
        by: Caller | None = None,
        seen: Seen | None = None,
        free: bool = True,
    ) -> SessionView:
        """Skip a step, loop or for_each, and resume the session if it has failed there.

        `author` is the name of the caller, which the step's reason records.
        Raises SessionUnknown, SessionChanged, ControlRefused if its status does not allow this,
        and PositionRefused for a step that is unknown, runs, is done, or cannot be skipped.
        """
        ref = self._registry.ref(session)
        why = _reason(reason, author)
        for _ in range(PLANS):
            program, fields = self._program(ref)
            targets = self._targets(ref, program, fields, step)
            if all(target.state == "skipped" for target in targets):
                break
            for target in targets:
                _refuse_running(session, target)
            left = [target for target in targets if target.state not in ("done", "skipped")]
            if not left:
                hint = f"{targets[0].address} is done; only a step without a result can be skipped"
                raise PositionRefused("step", step, hint)
            if any(target.state == "ended" for target in left):
                resume = partial(self._control.apply, by=by, seen=seen, free=free)
                self._run_skipped(session, left, why, resume)
                break
            if self._settle(ref, program, left, why, by=by, seen=seen):
                break
        else:
            raise SessionChanged(session, str(self._store.fields(ref).get("status")))
        return self._queries.session(session)

    def _program(self, ref: SessionRef) -> tuple[Program, dict[str, str]]:
        fields = self._store.fields(ref)
        status = fields.get("status", "")
        if status not in _OPEN:
            raise ControlRefused(ref.id, VERB, status, _way_out(ref.id, status))
        return self._registry.program(fields["program"]), dict(fields)

    def _targets(
        self, ref: SessionRef, program: Program, fields: dict[str, str], step: str
    ) -> list[_Target]:
        """The nodes that one step was made into: several ones only in a flow."""
        known = Snapshot(self._store, ref)
        try:
            name, item = item_of(program, step, known)
            point = newest_position(program, name, known)
        except PositionRefused as error:
            raise PositionRefused("step", error.value, error.hint) from None
        found = [] if item is None else [_item(program, known, item)]
        for node in nodes_of_step(program, point) if item is None else ():
            _check_kind(fields["kind"], node, step)
            address = address_of(program, known, point._replace(node=node.id))
            state = _state(node, address, known)
            if state == "open" and fields["status"] == SessionStatus.STOPPED:
                state = "ended"  # nothing below it runs
            found.append(_Target(node, address, state))
        self._check_status(ref, fields["status"], found, step, inside=bool(point.around))
        return found

    def _check_status(
        self, ref: SessionRef, status: str, found: list[_Target], step: str, *, inside: bool
    ) -> None:
        """Refuse what the session's status does not allow."""
        ended = [target for target in found if target.state == "ended"]
        if ended and status not in _RESTS:
            hint = f"{ended[0].address} has ended; stop the session first: leadhand stop {ref.id}"
            raise ControlRefused(ref.id, VERB, status, hint)
        if not ended and inside and status == SessionStatus.FAILED and found[0].state == "pending":
            hint = "it has not run; skip the step that failed, or its loop"
            raise PositionRefused("step", step, hint)

    def _settle(
        self,
        ref: SessionRef,
        program: Program,
        targets: list[_Target],
        why: Reason,
        *,
        by: Caller | None,
        seen: Seen | None,
    ) -> bool:
        """Skip nodes that have not run. Returns whether their states were as expected."""
        arguments: dict[str, JsonValue] = {
            "nonce": secrets.token_hex(8),
            "from": [status.value for status in _OPEN],
            "reason": why.model_dump(mode="json", exclude_none=True),
            "seen": seen.stored_fields() if seen else None,
            "steps": [
                {
                    "address": target.address,
                    "place": target.place,
                    "block": block_of(target.address),
                    "lists": [*target.lists(program)],
                }
                for target in targets
            ],
            **({"by": by.address, "fence": by.fence} if by else {}),
        }  # fmt: skip
        answer = self._transitions.run("steps_skip", ref, arguments)
        match answer.word:
            case "unknown":
                raise SessionUnknown(ref.id)
            case "changed":
                raise SessionChanged(ref.id, str(answer.status))
            case "refused":
                status = str(answer.status)
                raise ControlRefused(ref.id, VERB, status, _way_out(ref.id, status))
            case _:
                pass
        if answer.word == "begun":
            return False
        self._transitions.dispatch(ref, answer)
        return True

    def _run_skipped(
        self,
        session: str,
        targets: list[_Target],
        why: Reason,
        resume: partial[SessionView],
    ) -> None:
        """Resume the session with next runs of the nodes, which are skipped."""
        first = next(target for target in targets if target.state == "ended")

        def plan(ref: SessionRef, address: str | None) -> ResumePlan:
            assert address is not None
            fields = self._store.fields(ref)
            program = self._registry.program(fields["program"])
            failed = fields["status"] == SessionStatus.FAILED
            known = Snapshot(self._store, ref)
            return ResumePlan(
                rewind=rewind_before(program, address, known, failed=failed),
                as_of=fields["updated"],
                skips=tuple(SkippedNode(one.name, why, one.lists(program)) for one in targets),
            )

        resume(session, "resume", after=first.address, planner=plan)


def _reason(text: str, author: str) -> Reason:
    why = f"skipped by {author}" + (f": {text}" if text else "")
    return Reason(code=ReasonCode.USER_SKIP, text=why)


def _item(program: Program, known: Snapshot, item: Item) -> _Target:
    """The item of a for_each: one that has not started in an open run is pending."""
    record, turn = known.step(item.address), known.turn(item.run)
    state = record.state if record is not None else "pending"
    is_over = turn is not None and turn.state == "closed"
    if state == "succeeded":
        state = "done"
    elif state != "skipped" and (is_over or state in ("failed", "cancelled")):
        state = "ended"
    return _Target(program.node(path_of(item.run)), item.address, state, item.number)


def _state(node: Node, address: str, known: Snapshot) -> str:
    if isinstance(node, Loop) or node.for_each is not None:
        turn = known.turn(address)
        if turn is not None:
            if turn.verdict == "skipped":
                return "skipped"
            ended = "done" if turn_is_done(node, turn) else "ended"
            return ended if turn.state == "closed" else "open"
        if isinstance(node, Loop):
            return "pending"
    record = known.step(address)
    if record is None:
        return "pending"
    if record.state in ("ready", "parked", "running", "skipped"):
        return record.state
    refused = node.action is Action.CHECK and record.verdict != "accept"
    return "done" if record.state == "succeeded" and step_is_done(node, record) and not refused \
        else "ended"  # fmt: skip


def _check_kind(kind: str, node: Node, step: str) -> None:
    """Refuse steps without which their session has no result. Raises PositionRefused."""
    if kind == "plan" and node.id in (EXECUTE, "decompose"):
        hint = "a plan needs this step; drop a task with: leadhand plan drop SESSION TASK"
        raise PositionRefused("step", step, hint)
    if not isinstance(node, Loop) and node.action is Action.JUDGE:
        hint = "the judge ends the iteration; skip a check of the loop, or the loop"
        raise PositionRefused("step", step, hint)


def _refuse_running(session: str, target: _Target) -> None:
    if target.state in ("running", "open"):
        state = "is running" if target.state == "running" else "has begun"
        hint = f"{target.address} {state}; stop it first: leadhand stop {session}"
        raise ControlRefused(session, VERB, "active", hint)


def _way_out(session: str, status: str) -> str:
    if status in FINAL:
        return f"it has ended for good; fork it: leadhand fork {session} --after STEP"
    if status == "superseded":
        return "the step that asks no longer runs"
    return "wait until it is stopped"


class Retry:
    """Resumes sessions at the point before a step."""

    def __init__(self, store: Store, registry: Registry, control: SessionControl) -> None:
        self._store = store
        self._registry = registry
        self._control = control

    def retry(
        self,
        session: str,
        step: str,
        *,
        by: Caller | None = None,
        seen: Seen | None = None,
        free: bool = True,
    ) -> SessionView:
        """Resume a session so that a step, and what depends on it, runs again.

        Raises ControlRefused unless it is stopped or failed, PositionRefused for a step that has
        not run, and the errors of a resume.
        """
        return self._control.apply(
            session, "resume", after=step, by=by, seen=seen, planner=self._plan, free=free
        )

    def _plan(self, ref: SessionRef, step: str | None) -> ResumePlan:
        assert step is not None
        fields = self._store.fields(ref)
        status = fields.get("status", "")
        if status not in (SessionStatus.STOPPED, SessionStatus.FAILED):
            raise ControlRefused(ref.id, "retry a step of", status, _hint(ref.id, status))
        if fields["kind"] == "plan" and self._store.steps(ref, [EXECUTE]):
            hint = "the tasks of this plan have begun; retry one with `leadhand plan retry`"
            raise PositionRefused("step", step, hint)
        program = self._registry.program(fields["program"])
        failed = status == SessionStatus.FAILED
        try:
            rewind = rewind_before(program, step, Snapshot(self._store, ref), failed=failed)
        except PositionRefused as error:
            raise PositionRefused("step", error.value, error.hint) from None
        return ResumePlan(rewind=rewind, as_of=fields["updated"])


def _hint(session: str, status: str) -> str:
    if status in FINAL:
        return f"it has ended for good; fork it: leadhand fork {session} --after STEP"
    return f"stop it first: leadhand stop {session}"
