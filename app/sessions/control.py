"""Controls existing sessions: stop, resume, exit, abort, rehome, delete."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal

from pydantic import JsonValue

from app.compiler.plan import EXECUTE
from app.core.addresses import SessionRef, path_of
from app.core.program import BUDGETS, agents_of
from app.core.records import Reply
from app.core.states import AT_WORK, ENDED, PARENT_DID, SESSION_NEXT, Control, Seen, SessionStatus
from app.errors import InvalidDocument, PositionRefused
from app.fleet.admission import check_roots, other_home, tools_in
from app.fleet.overview import Fleet
from app.history.points import is_flow
from app.history.records import Snapshot
from app.plans.phases import Phases
from app.programs import Registry
from app.security.signatures import Caller
from app.sessions.drafts import SubmitDefinitions
from app.sessions.queries import Queries
from app.sessions.resume import (
    check_ceiling,
    check_open_loops,
    loops_opened,
    open_loops,
    point_address,
    rewind_failed,
    rewind_to,
    rewind_to_failure,
)
from app.sessions.rewind import ResumePlan
from app.store.store import Store
from app.transitions import Transitions
from leadhand.errors import (
    ControlRefused,
    QuotaPassed,
    SessionChanged,
    SessionStillRuns,
    SessionUnknown,
)
from leadhand.models.documents import Budget
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.fleet import WorkerView
from leadhand.models.views.session import SessionView

log = logging.getLogger(__name__)
#: Computes the plan of a resume, from a session and an optional point.
Planner = Callable[[SessionRef, str | None], ResumePlan]
#: Reads the definitions that a session takes over, and adjusts the plan of its resume.
Adopter = Callable[[SessionRef, ResumePlan], tuple[ResumePlan, JsonValue]]
#: Maximum plans per call: a session may change between the plan and the transition.
PLANS = 3

#: Statuses in which a session can move to another place.
MOVABLE = (SessionStatus.ACTIVE, SessionStatus.STOPPED, SessionStatus.FAILED)

_TARGET = {
    "stop": SessionStatus.STOPPING,
    "resume": SessionStatus.ACTIVE,
    "exit": SessionStatus.EXITING,
    "abort": SessionStatus.ABORTING,
}
#: Maximum number of open loops that are read for a new iteration limit.
OPEN_LOOPS = 1000


class SessionControl:
    """Runs the control transitions for users, bodies and parent sessions."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        transitions: Transitions,
        queries: Queries,
        fleet: Fleet,
        definitions: SubmitDefinitions,
    ) -> None:
        self._store = store
        self._definitions = definitions
        self._registry = registry
        self._transitions = transitions
        self._queries = queries
        self._fleet = fleet

    def apply(
        self,
        session: str,
        verb: Control,
        *,
        reason: str = "",
        max_iterations: int | None = None,
        budget: Budget | None = None,
        after: str | None = None,
        by: Caller | None = None,
        seen: Seen | None = None,
        planner: Planner | None = None,
        free: bool = True,
        accept_protected: bool = False,
    ) -> SessionView:
        """Stop, resume, exit or abort a session; returns its view. Raises ControlRefused.

        Raises SessionUnknown. A resume may set new budget limits, and name the last point that
        counts as done: what comes after it runs again. Raises PositionRefused for a point that was
        never reached, QuotaPassed if the token has no room for another active session. `planner`
        plans a resume that adopts another program. With `accept_protected` it takes protected files
        as they are; otherwise what a doer has changed is put back. A resume by one who is not
        `free` to bring commands takes over no definitions that are not approved. An exit `by` a
        body is refused in some phases.
        """
        ref = self._registry.ref(session)
        more: dict[str, JsonValue] = {"max_iterations": max_iterations}
        more["accept_protected"] = accept_protected or None
        if budget is not None:
            more["budget"] = {**budget.limits()}
        if seen is not None:
            more["seen"] = seen.stored_fields()
        if verb == "exit" and by is not None:
            check_exit(self._store, ref)
        adopt = partial(self._definitions.adopt_changes, free=free)
        self._control(
            ref, verb, reason=reason, by=by, more=more, after=after, planner=planner, adopt=adopt
        )
        return self._queries.session(session)

    def _control(
        self,
        ref: SessionRef,
        verb: Control,
        *,
        reason: str,
        more: Mapping[str, JsonValue],
        by: Caller | None = None,
        after: str | None = None,
        planner: Planner | None = None,
        adopt: Adopter | None = None,
    ) -> None:
        arguments: dict[str, JsonValue] = {
            "verb": verb,
            # A repeated call gets the same reply instead of a refusal.
            "nonce": secrets.token_hex(8),
            "from": [
                s.value for s, following in SESSION_NEXT.items() if _TARGET[verb] in following
            ],
            "reason": _control_reason(verb, reason, by),
            **more,
        }
        if by is not None:
            arguments |= {"by": by.address, "fence": by.fence}
        if more.get("max_iterations"):
            arguments["max_of"] = self._loop_at_its_limit(ref)
        plan = planner or (lambda ref, after: self._plan(ref, verb, after))
        answer = self._plan_and_run(ref, plan, arguments, after, adopt)
        tries = 1
        # It may have changed between the plan and the call: plan again.
        while _is_stale_plan(answer) and tries < PLANS:
            answer = self._plan_and_run(ref, plan, arguments, after, adopt)
            tries += 1
        if planner is not None or verb == "resume":
            self._registry.forget_facts()  # its program or its definitions may have changed
        _raise_refusal(ref.id, verb, answer)
        self._transitions.dispatch(ref, answer)

    def _plan(self, ref: SessionRef, verb: Control, after: str | None) -> ResumePlan:
        return self._plan_again(ref, verb) if after is None else self._plan_after(ref, after)

    def _plan_and_run(
        self,
        ref: SessionRef,
        planner: Planner,
        arguments: dict[str, JsonValue],
        after: str | None,
        adopt: Adopter | None,
    ) -> Reply:
        plan = planner(ref, after)
        most = arguments.get("max_iterations")
        if isinstance(most, int):
            loop = arguments.get("max_of")
            plan = self._check_limit(
                ref, plan, most, after=after, loop=loop if isinstance(loop, str) else None
            )
        # A limit in the call overrides one in the plan.
        limits = {**plan.limits, **_limits(arguments)}
        more: dict[str, JsonValue] = {"budget": limits}
        if arguments["verb"] == "resume" and adopt is not None:
            plan, more["defines"] = adopt(ref, plan)
        return self._transitions.run("control", ref, {**arguments, **plan.arguments(), **more})

    def _check_limit(
        self, ref: SessionRef, plan: ResumePlan, most: int, *, after: str | None, loop: str | None
    ) -> ResumePlan:
        """Check that a new limit of `most` iterations applies to a loop of the plan.

        Raises PositionRefused if it would apply with another point, else InvalidDocument.
        """
        fields = self._store.fields(ref)
        if fields.get("status") not in (SessionStatus.STOPPED, SessionStatus.FAILED):
            return plan  # the transition refuses it
        if plan.rewind is None:
            loops = open_loops(self._store.turns(ref, self._store.members(ref, "open", OPEN_LOOPS)))
            check_open_loops(loops, most)
            return plan if plan.as_of else plan._replace(as_of=fields["updated"])
        adopted = plan.adopts
        program = adopted.program if adopted else self._registry.program(fields["program"])
        check_ceiling(after, loop, loops_opened(program, plan.rewind), most)
        return plan

    def _loop_at_its_limit(self, ref: SessionRef) -> str | None:
        """The path of the loop whose max_iterations made the session fail."""
        fields = self._store.fields(ref)
        if fields.get("status") != SessionStatus.FAILED or not fields.get("reason"):
            return None
        root = Reason.model_validate_json(fields["reason"]).root
        return path_of(root.at) if root.code is ReasonCode.MAX_ITERATIONS and root.at else None

    def follow(
        self, child: SessionRef, verb: Control, above: SessionRef, meant: Sequence[SessionStatus]
    ) -> None:
        """Stop or resume a child session with its parent, unless the parent changed since."""
        guard: dict[str, JsonValue] = {
            "base": self._store.keys.base(above),
            "status": [status.value for status in meant],
        }
        more: dict[str, JsonValue] = {"above": guard}
        if verb == "resume":
            more["from"] = [SessionStatus.STOPPED.value]  # a failed child stays failed
        adopt = partial(self._definitions.adopt_changes, above=above)
        self._control(child, verb, reason=PARENT_DID, more=more, adopt=adopt)

    def abort_below(self, child: SessionRef) -> None:
        """Abort a child because its parent has ended; a failed child stays failed."""
        more: dict[str, JsonValue] = {"from": [s.value for s in (*AT_WORK, SessionStatus.STOPPED)]}
        self._control(child, "abort", reason=PARENT_DID, more=more)

    def exit_of_child(
        self, ref: SessionRef, parent: Mapping[str, str], child: str, why: str | None
    ) -> None:
        """Exit a session because its child session exited. Raises ControlRefused if too late.

        It is too late if the attempt whose body started the child no longer runs.
        """
        by = Caller(ref.id, parent["address"], int(parent["fence"]), ())
        beneath = Reason.model_validate_json(why) if why else None
        reason = Reason(
            code=ReasonCode.EXIT, text=f"child session {child} is exited", at=by.address,
            child=child,
            beneath=beneath,
        )  # fmt: skip
        more: dict[str, JsonValue] = {"reason": reason.model_dump(mode="json", exclude_none=True)}
        self._control(ref, "exit", reason="", by=by, more=more)

    def poke(self, ref: SessionRef, address: str, *, child: str) -> None:
        """Make a parent update its child session's usage, and finish a stop that waited for it."""
        arguments: dict[str, JsonValue] = {
            "verb": "poke",
            "from": [s.value for s in AT_WORK],
            "address": address,
            "child": child,
        }
        self._transitions.apply("control", ref, arguments)

    def rehome(self, session: str, place: str, *, seen: Seen | None = None) -> SessionView:
        """Move a session, with its waiting steps, to another place (worker host); returns its view.

        Raises SessionUnknown, SessionChanged, ControlRefused, and InvalidDocument for a place
        that cannot run it.
        """
        ref = self._registry.ref(session)
        fields = self._store.fields(ref)
        self._check_place(place, fields.get("cwd") or None)
        self._move(ref, fields, place, seen=seen)
        return self._queries.session(session)

    def choose_again(self, ref: SessionRef, workers: Sequence[WorkerView]) -> None:
        """Move an unstarted session without workers to the only other place that can run it.

        Does nothing if its place was named, or if no other or several places can run it.
        """
        facts = self._registry.facts(ref)
        if not facts.place or not facts.cwd or any(w.place == facts.place for w in workers):
            return
        fields = self._store.fields(ref)
        if not (fields.get("chosen") and fields.get("updated")):
            return
        program = self._registry.program(fields["program"])
        place = other_home(
            fields["place"],
            fields["cwd"],
            workers,
            agents=agents_of(program),
            tools=tools_in(program),
        )
        if place is None:
            return
        seen = Seen(fields["status"], int(fields["updated"]))
        with suppress(ControlRefused, SessionChanged):
            self._move(ref, fields, place, seen=seen, unclaimed=True)
            log.info("moved to another place", extra={"session": ref.id, "place": place})

    def _move(
        self,
        ref: SessionRef,
        fields: Mapping[str, str],
        place: str,
        *,
        seen: Seen | None,
        unclaimed: bool = False,
    ) -> None:
        folder = fields.get("folder", "").partition(":")[2].partition(":")[2]
        arguments: dict[str, JsonValue] = {
            "verb": "rehome",
            "from": [status.value for status in MOVABLE],
            "place": place,
            "folder": f"folder:{place}:{folder}" if folder else "",
            "signature": self._registry.sign_for_place(ref, fields, place),
            "seen": seen.stored_fields() if seen else None,
            "unclaimed": unclaimed or None,
        }
        answer = self._transitions.run("control", ref, arguments)
        _raise_refusal(ref.id, "rehome", answer)
        self._registry.forget_facts()
        self._transitions.dispatch(ref, answer)

    def _check_place(self, place: str, cwd: str | None) -> None:
        workers = self._fleet.inventories()
        here = [worker for worker in workers if worker.place == place]
        if not here:
            known = ", ".join(sorted({worker.place for worker in workers})) or "none"
            raise InvalidDocument(
                "place", place, f"no worker is at this place; workers are at {known}"
            )
        check_roots(cwd, place, here)

    def delete(
        self, session: str, *, force: bool = False, seen: Seen | None = None
    ) -> SessionView | None:
        """Delete an ended session; with `force`, abort an active one and delete it at its end.

        Returns the view of a session that has yet to end, or None if it is deleted. Raises
        SessionUnknown, SessionChanged, SessionStillRuns.
        """
        ref = self._registry.ref(session)
        arguments: dict[str, JsonValue] = {
            "seen": seen.stored_fields() if seen else None,
            "force": [status.value for status in sorted(ENDED)] if force else None,
        }
        answer = self._transitions.run("delete", ref, arguments)
        match answer.word:
            case "refused":
                raise SessionStillRuns(session, str(answer.status))
            case "changed":
                raise SessionChanged(session, str(answer.status))
            case "unknown":
                raise SessionUnknown(session)
            case "doomed":
                return self.end_for_good(ref)
            case _:
                return None

    def end_for_good(self, ref: SessionRef) -> SessionView | None:
        """Abort a session marked for deletion; returns its view, or None if it is deleted."""
        try:
            view = self._abort(ref.id)
        except SessionUnknown:
            return None  # the sweeper was faster
        self._store.remove_errand(f"delete|{ref.member}")
        if view.status not in ENDED or self._store.fields(ref).get("rings"):
            return view  # it is deleted after its end, when its webhook has been delivered
        self._transitions.deliver(f"forget|{ref.member}")
        return None

    def _abort(self, session: str) -> SessionView:
        try:
            return self.apply(session, "abort", reason="it is deleted by force")
        except ControlRefused:
            return self._queries.session(session)  # it is aborting already, or has ended

    def _plan_after(self, ref: SessionRef, after: str) -> ResumePlan:
        """Plans a resume of a stopped or failed session after a point."""
        fields = self._store.fields(ref)
        if fields.get("status") not in (SessionStatus.STOPPED, SessionStatus.FAILED):
            return ResumePlan()
        if fields["kind"] == "plan" and self._store.steps(ref, [EXECUTE]):
            hint = "the tasks of this plan have begun; resume it without a point"
            raise PositionRefused("after", after, hint)
        program = self._registry.program(fields["program"])
        failed = fields["status"] == SessionStatus.FAILED
        known = Snapshot(self._store, ref)
        return ResumePlan(
            rewind=rewind_to(program, after, known, failed=failed),
            as_of=fields["updated"],
            after=point_address(program, after, known),
        )

    def _plan_again(self, ref: SessionRef, verb: Control) -> ResumePlan:
        """Plans which nodes of a failed session run again."""
        fields = self._store.fields(ref) if verb == "resume" else {}
        if fields.get("status") != SessionStatus.FAILED:
            return ResumePlan()
        program = self._registry.program(fields["program"])
        if is_flow(program):
            rewind = rewind_to_failure(program, Snapshot(self._store, ref))
            return ResumePlan(rewind=rewind, ended=fields["ended"])
        finished, failed = self._queries.outermost_states(ref, program)
        rewind = rewind_failed(program, failed, finished, Snapshot(self._store, ref))
        return ResumePlan(rewind=rewind, ended=fields["ended"])


def _raise_refusal(session: str, verb: Control | Literal["rehome"], answer: Reply) -> None:
    match answer.word:
        case "unknown":
            raise SessionUnknown(session)
        case "changed" | "moved":
            raise SessionChanged(session, str(answer.status))
        case "quota":
            raise QuotaPassed("sessions", answer.limit or 0)
        case "label_taken":
            way_out = f"session {answer.session} has its label now; stop that, or wait for its end"
            raise ControlRefused(session, verb, str(answer.status), way_out)
        case "refused":
            status = str(answer.status)
            hint = budget_hint(answer) if answer.text else _refusal_hint(verb, status)
            raise ControlRefused(session, verb, status, hint)
        case _:
            return


def _limits(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    limits = arguments.get("budget")
    return limits if isinstance(limits, dict) else {}


def _is_stale_plan(answer: Reply) -> bool:
    if answer.word == "moved":
        return True
    refused = answer.word == "refused" and answer.text is None
    return refused and answer.status == SessionStatus.FAILED


def budget_hint(answer: Reply) -> str:
    """Returns a hint that names the exhausted budget and how to raise it."""
    field = next(name for name, (counter, _) in BUDGETS.items() if counter == answer.why)
    return f"its budget.{field} is used up ({answer.text}); raise it in this call"


def _control_reason(verb: Control, text: str, by: Caller | None) -> dict[str, JsonValue] | None:
    codes = {"stop": ReasonCode.USER_STOP, "exit": ReasonCode.EXIT, "abort": ReasonCode.ABORTED}
    code = codes.get(verb)
    if code is None:
        return None
    reason = Reason(code=code, text=text, at=by.address if by else None)
    return reason.model_dump(mode="json", exclude_none=True)


def _refusal_hint(verb: str, status: str) -> str:
    if verb == "rehome":
        return "only a session with steps left to run can move"
    if status == "folder in use":
        return "a worker commits, applies or removes what is in its folder; try again soon"
    if verb == "resume":
        return "only a stopped or failed session can be resumed"
    if status == "superseded":
        return "the step that asks no longer runs"
    return "it has ended" if status in ("completed", "exited", "aborted") else "wait for its end"


def check_exit(store: Store, ref: SessionRef) -> None:
    """Raises ControlRefused if an active session is in a phase in which it must not exit."""
    fields = store.fields(ref)
    if fields.get("status") != SessionStatus.ACTIVE:
        return  # the transition says what is wrong
    phase = Phases(store).view(ref, fields)
    if phase is not None and phase.may_end == "block":
        raise ControlRefused(ref.id, "exit", fields["status"], phase.text)
