"""Steers sessions that exist: stop, resume, exit, abort, move, delete."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from pydantic import JsonValue

from app import decide
from app.admission import check_roots, other_home
from app.capabilities import Caller
from app.ceilings import check_ceiling, check_under_way, opened_at_once, under_way
from app.errors import (
    ControlRefused,
    InvalidDocument,
    QuotaPassed,
    SessionChanged,
    SessionStillRuns,
    SessionUnknown,
)
from app.flow_positions import is_flow
from app.keys import SessionRef
from app.known import KnownOf
from app.pictures import BUDGETS
from app.program import Program, agents_of, path_of
from app.reading import Reader
from app.reasons import Reason, ReasonCode
from app.records import Answer
from app.registry import Registry
from app.rewinding import address_named, gone_on, rewound
from app.states import ENDED, SESSION_NEXT, SessionStatus
from app.store import Store
from app.tools_here import tools_in
from app.transitions import Transitions
from app.views import SessionView, WorkerView
from leadhand.documents import Budget

log = logging.getLogger(__name__)

Control = Literal["stop", "resume", "exit", "abort"]
#: What the script is told of how a session goes on, after this point where one is named.
Plan = Callable[[SessionRef, str | None], dict[str, JsonValue]]

#: Something of these may still run.
AT_WORK = (
    SessionStatus.ACTIVE,
    SessionStatus.STOPPING,
    SessionStatus.EXITING,
    SessionStatus.ABORTING,
)
#: How often a resume is tried anew whose session failed between the look and the call.
LOOKS = 3

#: Why a child was stopped, told from what a user did to it.
PARENT_DID = "its parent session did"

#: A session can be bound to another place while it is one of these.
MOVABLE = (SessionStatus.ACTIVE, SessionStatus.STOPPED, SessionStatus.FAILED)

_TARGET = {
    "stop": SessionStatus.STOPPING,
    "resume": SessionStatus.ACTIVE,
    "exit": SessionStatus.EXITING,
    "abort": SessionStatus.ABORTING,
}


#: Open loops that are looked at where a ceiling is named.
MANY = 1000


class Seen(NamedTuple):
    """What a caller saw of a session: its status, and when it had changed last."""

    status: str
    updated_ms: int

    def as_stored(self) -> dict[str, JsonValue]:
        """The same as the session's own hash has it."""
        status = SessionStatus.ACTIVE.value if self.status == "waiting" else self.status
        return {"status": status, "updated": str(self.updated_ms)}


class Steering:
    """What people, bodies and parent sessions ask of a session."""

    def __init__(
        self, store: Store, registry: Registry, transitions: Transitions, reader: Reader
    ) -> None:
        self._store = store
        self._registry = registry
        self._transitions = transitions
        self._reader = reader

    def control(
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
        plan: Plan | None = None,
    ) -> SessionView:
        """Stop, resume, exit or abort. Raises SessionUnknown, SessionChanged, ControlRefused.

        A resume may come with limits of the budget that are to hold from now on, and with the
        last point that counts as done: what comes after it runs anew. Raises PositionRefused
        for a point where the session never was, QuotaPassed where a resume finds no room among
        the sessions of its token. `plan` says how it goes on where its own program does not.
        """
        ref = self._registry.ref(session)
        more: dict[str, JsonValue] = {"max_iterations": max_iterations}
        if budget is not None:
            more["budget"] = {**budget.limits()}
        if seen is not None:
            more["seen"] = seen.as_stored()
        self._control(ref, verb, reason=reason, by=by, more=more, after=after, plan=plan)
        return self._reader.session(session)

    def _control(
        self,
        ref: SessionRef,
        verb: Control,
        *,
        reason: str,
        more: Mapping[str, JsonValue],
        by: Caller | None = None,
        after: str | None = None,
        plan: Plan | None = None,
    ) -> None:
        arguments: dict[str, JsonValue] = {
            "verb": verb,
            # A repetition by a client whose answer got lost is told the same, not refused.
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
            arguments["max_of"] = self._reached(ref)
        look = plan or (lambda ref, after: self._look(ref, verb, after))
        answer = self._look_and_run(ref, look, arguments, after)
        looks = 1
        # It may have changed between the look and the call: look again at what runs anew.
        while _changed_meanwhile(answer) and looks < LOOKS:
            answer = self._look_and_run(ref, look, arguments, after)
            looks += 1
        if plan is not None:
            self._registry.forget_facts()  # it has another program now
        _raise_refusal(ref.id, verb, answer)
        self._transitions.dispatch(ref, answer)

    def _look(self, ref: SessionRef, verb: Control, after: str | None) -> dict[str, JsonValue]:
        return self._anew(ref, verb) if after is None else self._after(ref, after)

    def _look_and_run(
        self, ref: SessionRef, look: Plan, arguments: dict[str, JsonValue], after: str | None
    ) -> Answer:
        anew = look(ref, after)
        if arguments.get("max_iterations") is not None:
            anew = self._with_ceiling(ref, arguments, anew, after)
        # What the call says of the budget comes before what the plan says.
        limits = {**_limits(anew), **_limits(arguments)}
        return self._transitions.run("control", ref, {**arguments, **anew, "budget": limits})

    def _with_ceiling(
        self,
        ref: SessionRef,
        arguments: Mapping[str, JsonValue],
        anew: dict[str, JsonValue],
        after: str | None,
    ) -> dict[str, JsonValue]:
        """The same, where the ceiling that is named takes effect.

        Raises PositionRefused where it would with another point, InvalidDocument where nothing
        has such a ceiling.
        """
        fields = self._store.fields(ref)
        again, levels, most = anew.get("again"), anew.get("levels"), arguments["max_iterations"]
        if fields.get("status") not in (SessionStatus.STOPPED, SessionStatus.FAILED):
            return anew  # the script says so
        if not isinstance(again, list):
            loops = under_way(self._store.turns(ref, self._store.members(ref, "open", MANY)))
            check_under_way(loops, most)
            return {"as_of": fields["updated"], **anew}
        adopts = anew.get("adopts")
        program = (
            Program.model_validate_json(str(adopts["document"]))
            if isinstance(adopts, dict)
            else self._registry.program(fields["program"])
        )
        opened = opened_at_once(program, again, levels if isinstance(levels, list) else [])
        check_ceiling(after, arguments.get("max_of"), opened, most)
        return anew

    def _reached(self, ref: SessionRef) -> str | None:
        """The path of the loop for whose ceiling a session failed."""
        fields = self._store.fields(ref)
        if fields.get("status") != SessionStatus.FAILED or not fields.get("reason"):
            return None
        root = Reason.model_validate_json(fields["reason"]).root
        return path_of(root.at) if root.code is ReasonCode.MAX_ITERATIONS and root.at else None

    def follow(
        self, child: SessionRef, verb: Control, above: SessionRef, meant: Sequence[SessionStatus]
    ) -> None:
        """Let a child do what its parent did, while the parent still is what it was then."""
        guard: dict[str, JsonValue] = {
            "base": self._store.keys.base(above),
            "status": [status.value for status in meant],
        }
        more: dict[str, JsonValue] = {"above": guard}
        if verb == "resume":
            more["from"] = [SessionStatus.STOPPED.value]  # what failed for itself stays so
        self._control(child, verb, reason=PARENT_DID, more=more)

    def abort_below(self, child: SessionRef) -> None:
        """End a child of a session that has ended; what failed for itself stays so."""
        more: dict[str, JsonValue] = {"from": [s.value for s in (*AT_WORK, SessionStatus.STOPPED)]}
        self._control(child, "abort", reason=PARENT_DID, more=more)

    def exit_of_child(
        self, ref: SessionRef, parent: Mapping[str, str], child: str, why: str | None
    ) -> None:
        """An exit of a child that a body began is one of its own session, as if it had called it.

        Raises ControlRefused where that attempt runs no more.
        """
        by = Caller(ref.id, parent["address"], int(parent["fence"]), ())
        beneath = Reason.model_validate_json(why) if why else None
        reason = Reason(
            code=ReasonCode.EXIT, text=f"child session {child} is exited", at=by.address,
            beneath=beneath,
        )  # fmt: skip
        more: dict[str, JsonValue] = {"reason": reason.model_dump(mode="json", exclude_none=True)}
        self._control(ref, "exit", reason="", by=by, more=more)

    def poke(self, ref: SessionRef, address: str, *, child: str) -> None:
        """Count what this step's child used, and see whether a wait for its end or stop is over."""
        arguments: dict[str, JsonValue] = {
            "verb": "poke",
            "from": [s.value for s in AT_WORK],
            "address": address,
            "child": child,
        }
        self._transitions.dispatch(ref, self._transitions.run("control", ref, arguments))

    def rehome(self, session: str, place: str, *, seen: Seen | None = None) -> SessionView:
        """Bind a session to another place, with all that waits.

        Raises SessionUnknown, SessionChanged, ControlRefused, and InvalidDocument for a place
        that cannot have it.
        """
        ref = self._registry.ref(session)
        fields = self._store.fields(ref)
        self._check_place(place, fields.get("cwd") or None)
        self._move(ref, fields, place, seen=seen)
        return self._reader.session(session)

    def choose_again(self, ref: SessionRef, workers: Sequence[WorkerView]) -> None:
        """Move a session that nobody has begun, whose place was chosen for it and is gone.

        Where one other place holds its folder, and no more.
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
            "signature": self._registry.signed_anew(ref, fields, place),
            "seen": seen.as_stored() if seen else None,
            "unclaimed": unclaimed or None,
        }
        answer = self._transitions.run("control", ref, arguments)
        _raise_refusal(ref.id, "rehome", answer)
        self._registry.forget_facts()
        self._transitions.dispatch(ref, answer)

    def _check_place(self, place: str, cwd: str | None) -> None:
        workers = self._reader.workers()
        here = [worker for worker in workers if worker.place == place]
        if not here:
            known = ", ".join(sorted({worker.place for worker in workers})) or "none"
            raise InvalidDocument("place", place, f"no worker is there; workers are at {known}")
        check_roots(cwd, place, here)

    def stands(self, caller: Caller) -> bool:
        """Whether the attempt that a body's token speaks for still has its step."""
        ref = self._store.ref(caller.session)
        step = self._store.steps(ref, [caller.address]).get(caller.address) if ref else None
        return step is not None and step.state == "running" and step.fence == caller.fence

    def delete(
        self, session: str, *, force: bool = False, seen: Seen | None = None
    ) -> SessionView | None:
        """Forget an ended session; by force, one that runs is aborted and forgotten at its end.

        The view of one that is still to end, None where it is forgotten already.
        Raises SessionUnknown, SessionChanged, SessionStillRuns.
        """
        ref = self._registry.ref(session)
        arguments: dict[str, JsonValue] = {
            "seen": seen.as_stored() if seen else None,
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
        """Abort a session that goes as soon as it has ended; None where that was at once."""
        try:
            view = self._aborted(ref.id)
        except SessionUnknown:
            return None  # the sweep was faster
        self._store.errand_done(f"delete|{ref.member}")
        if view.status not in ENDED or self._store.fields(ref).get("rings"):
            return view  # it goes once its end has come, and was told to whoever asked for that
        self._transitions.errand(f"forget|{ref.member}")
        return None

    def _aborted(self, session: str) -> SessionView:
        try:
            return self.control(session, "abort", reason="it is deleted by force")
        except ControlRefused:
            return self._reader.session(
                session
            )  # it is being aborted already, or has ended meanwhile

    def _after(self, ref: SessionRef, after: str) -> dict[str, JsonValue]:
        """What runs anew so that a session that does not run goes on after this point."""
        fields = self._store.fields(ref)
        if fields.get("status") not in (SessionStatus.STOPPED, SessionStatus.FAILED):
            return {}
        program = self._registry.program(fields["program"])
        failed = fields["status"] == SessionStatus.FAILED
        known = KnownOf(self._store, ref)
        found = rewound(program, after, known, failed=failed)
        seen: dict[str, JsonValue] = {
            "as_of": fields["updated"], "after": address_named(program, after, known),
        }  # fmt: skip
        return seen | (found._asdict() if found else {})

    def _anew(self, ref: SessionRef, verb: Control) -> dict[str, JsonValue]:
        """Which nodes a failed session runs anew when it is resumed."""
        fields = self._store.fields(ref) if verb == "resume" else {}
        if fields.get("status") != SessionStatus.FAILED:
            return {}
        program = self._registry.program(fields["program"])
        if is_flow(program):
            found = gone_on(program, KnownOf(self._store, ref))
            return {**found._asdict(), "ended": fields["ended"]}
        finished, failed = self._reader.standing(ref, program)
        anew = decide.dependents(program, failed)
        again: list[JsonValue] = [dict(n) for n in decide.run_anew(program, anew, finished)]
        return {"again": again, "ended": fields["ended"]}


def _raise_refusal(session: str, verb: Control | Literal["rehome"], answer: Answer) -> None:
    match answer.word:
        case "unknown":
            raise SessionUnknown(session)
        case "changed" | "moved":
            raise SessionChanged(session, str(answer.status))
        case "quota":
            raise QuotaPassed("sessions", answer.limit or 0)
        case "refused":
            status = str(answer.status)
            way_out = way_out_of_spent(answer) if answer.text else _way_out(verb, status)
            raise ControlRefused(session, verb, status, way_out)
        case _:
            return


def _limits(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    limits = arguments.get("budget")
    return limits if isinstance(limits, dict) else {}


def _changed_meanwhile(answer: Answer) -> bool:
    if answer.word == "moved":
        return True
    refused = answer.word == "refused" and answer.text is None
    return refused and answer.status == SessionStatus.FAILED


def way_out_of_spent(answer: Answer) -> str:
    """Which budget is used up, and how it is raised."""
    field = next(name for name, (counter, _) in BUDGETS.items() if counter == answer.why)
    return f"its budget.{field} is used up ({answer.text}); raise it in this call"


def _control_reason(verb: Control, text: str, by: Caller | None) -> dict[str, JsonValue] | None:
    code = {
        "stop": ReasonCode.USER_STOP,
        "exit": ReasonCode.EXIT,
        "abort": ReasonCode.ABORTED,
    }.get(verb)
    if code is None:
        return None
    reason = Reason(code=code, text=text, at=by.address if by else None)
    return reason.model_dump(mode="json", exclude_none=True)


def _way_out(verb: str, status: str) -> str:
    if verb == "rehome":
        return "only what still has steps to run can move"
    if verb == "resume":
        return "only a stopped or failed session can be resumed"
    if status == "superseded":
        return "the step that asks runs no more"
    return "it has ended" if status in ("completed", "exited", "aborted") else "wait for its end"
