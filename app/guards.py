"""Stop guards: their stops, events and resets, each read, decided and written at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.core.addresses import SessionRef, iso
from app.core.guards import (
    CHILDREN,
    GuardState,
    Turn,
    attempt_of,
    begin_prompt,
    decide,
    decide_early,
    reset,
)
from app.core.program import Action, Program, Step
from app.core.records import Reply
from app.core.states import AT_WORK
from app.history.ledger import FEEDBACK
from app.redaction import without_keys
from app.security.api_tokens import Owner
from app.sessions.context import SessionContext
from app.sessions.submit import About
from app.truncate import cut
from leadhand.contract.sessions import SessionsWanted, ShownStatus
from leadhand.errors import LabelTaken
from leadhand.models.documents import Budget
from leadhand.models.guards import OUTPUT, AgentEvent, GateResult, StopReport
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.fleet import Quotas
from leadhand.models.views.result import LedgerEntry
from leadhand.models.views.session import SessionView
from leadhand.models.views.shared import GuardReset, GuardsView, GuardView, StopDecision, StopView

#: Statuses of guards whose agents may still stop.
_OPEN: tuple[ShownStatus, ...] = ("active", "waiting")
_PAGE = 100
_INSIDE = "inside "
#: Attempts to write a state that other calls change meanwhile.
TRIES = 50


def list_guards(
    engine: SessionContext, agent_session: str | None, *, inside: str | None = None
) -> GuardsView:
    """Returns open guards (agents' Stop hooks), newest first, of one agent session or all."""
    items = [_view(engine, one) for one in _sessions(engine, agent_session, inside)]
    return GuardsView(active=sum(one.active for one in items), total=len(items), items=items)


def _open_guards(
    engine: SessionContext, agent_session: str | None, *, inside: str | None = None
) -> Iterator[SessionRef]:
    """Yields the session references of unended guards (of agents' Stop hooks), newest first."""
    for one in _sessions(engine, agent_session, inside):
        yield SessionRef(one.id, one.root)


def _children_at_work(engine: SessionContext, session: str) -> list[str]:
    """Returns a line for each child session of a session that has not ended, oldest first."""
    ref = engine.store.ref(session)
    found = engine.store.fields_of([*engine.store.children(ref)]) if ref is not None else {}
    working = [
        (fields, child) for child, (_, fields) in found.items() if fields.get("status") in AT_WORK
    ]
    working.sort(key=lambda one: (int(one[0]["created"]), one[1]))
    return [
        f"{child} ({fields.get('label') or fields['name']}): {fields['status']}"
        for fields, child in working
    ]


def _sessions(
    engine: SessionContext, agent_session: str | None, inside: str | None
) -> Iterator[SessionView]:
    label = inside_label(inside) or None
    wanted = SessionsWanted(kind="guard", name=agent_session, label=label, status=_OPEN)
    cursor: str | None = None
    while True:
        page = engine.queries.sessions(wanted, limit=_PAGE, cursor=cursor)
        yield from page.items
        cursor = page.next
        if cursor is None:
            return


def _view(engine: SessionContext, session: SessionView) -> GuardView:
    ref = SessionRef(session.id, session.root)
    stored = engine.store.values(ref, "guard", ["state", "hook"])
    state = parse_state(stored.get("state"))
    hook = json.loads(stored["hook"]) if "hook" in stored else None
    label = session.label or ""
    return GuardView(
        guard=session.id,
        status=session.status,
        agent_session=session.name,
        inside=label.removeprefix(_INSIDE) if label.startswith(_INSIDE) else None,
        active=hook is not None,
        active_since=iso(hook["at"]) if hook else None,
        stops=state.stops,
        failed_stops=state.failed_stops,
        blocks=state.blocks,
        blocks_in_a_row=state.row,
        overridden=state.overridden,
        stage=state.stage,
        retries=state.retries,
        last=state.last,
        limit_reached=", ".join(name.replace("*", "all gates") for name in state.given_up) or None,
        last_stop_at=iso(state.last_stop_ms) if state.last_stop_ms is not None else None,
    )


def parse_state(text: str | None) -> GuardState:
    """Parses the stored JSON state of a Stop-hook guard; returns a new state if none is stored."""
    return GuardState.model_validate_json(text) if text else GuardState()


def decide_stop(engine: SessionContext, guarded: Guarded, report: StopReport) -> StopView:
    """Answer an agent that wants to stop: run the gates first, or allow or block the stop.

    One hook of an agent session runs at a time; one that is older than its stale timeout is
    replaced. The same stop again gets the same decision. Raises QuotaPassed for a new agent
    session that its caller's quota has no room for.
    """
    for _ in range(TRIES):
        ref = _find_or_create(engine, guarded)
        arguments: dict[str, JsonValue] = {
            "stop": report.stop,
            "stale_ms": round(report.limits.stale_s * 1000),
        }
        answer = engine.transitions.run("guard_begin", ref, arguments)
        if answer.word == "repeated":
            return StopView.model_validate_json(str(answer.decision))
        if answer.word == "busy":
            return StopView(state="busy", guard=ref.id, why="Stop hook already running")
        known = _with_children(engine, guarded.inside, report)
        view = _answer_stop(engine, ref, known, answer) if answer.word == "begun" else None
        if view is not None:
            return view
    raise RuntimeError(f"the guard of {guarded.agent_session!r} changes all the time")


def _with_children(engine: SessionContext, session: str | None, report: StopReport) -> StopReport:
    """The report with a gate that fails while children of the agent's session are at work."""
    gates = report.gates
    if session is None or gates is None or CHILDREN in {gate.name for gate in gates}:
        return report
    children = _children_at_work(engine, session)
    if not children:
        return report
    gate = GateResult(name=CHILDREN, outcome="failed", output="\n".join(children))
    return report.model_copy(update={"gates": (*gates, gate)})


def record_event(engine: SessionContext, guarded: Guarded, event: AgentEvent) -> None:
    """Record a prompt or idle event of an agent, which ends a series of consecutive blocks."""
    for ref in _open_guards(engine, guarded.agent_session, inside=guarded.inside):

        def apply(state: GuardState) -> Turn:
            return begin_prompt(state, event.prompt_id, event=event.event)

        _change(engine, ref, apply, "guard.event", {"event": event.event})


def reset_all(engine: SessionContext, agent_session: str | None, *, by: str) -> GuardReset:
    """Reset the limit counters of one agent session's Stop guards, or all; returns how many.

    It also frees their hooks.
    """
    count = 0
    for ref in _open_guards(engine, agent_session):

        def apply(state: GuardState) -> Turn:
            return Turn(reset(state))

        count += _change(engine, ref, apply, "guard.reset", {"by": by}, frees=True)
    return GuardReset(reset=count)


def _answer_stop(
    engine: SessionContext, ref: SessionRef, report: StopReport, begun: Reply
) -> StopView | None:
    """The answer to a stop that holds the guard; None if it must be read again."""
    state, now = _state(begun), begun.now
    if report.gates is None and report.unchecked is None:
        turn = decide_early(state, report, now)
        if turn is None:
            attempt, why = attempt_of(state)
            return StopView(state="run", guard=ref.id, attempt=attempt, why=why)
    else:
        turn = decide(state, report, now)
    decision = turn.decision
    assert decision is not None
    attempt, why = attempt_of(state)
    view = StopView(state="decided", guard=ref.id, attempt=attempt, why=why, decision=decision)
    entry = ledger_entry(turn.state.stops, report, decision, f"stop {attempt}: {why}", now)
    warnings = [*turn.warnings, *(f"while the API was away: {one}" for one in report.missed)]
    arguments: dict[str, JsonValue] = {
        "stop": report.stop,
        "decision": view.model_dump_json(),
        "version": begun.version,
        "kind": "guard.decided",
        "event": _event_fields(report, decision),
        "warnings": list(warnings) or None,
        "idle_ms": IDLE_S * 1000,
    }
    text = turn.state.model_dump_json()
    answer = engine.transitions.run("guard_write", ref, arguments, outcome=text, ledger=entry)
    if answer.word == "written":
        return view
    if answer.word == "repeated":
        return StopView.model_validate_json(str(answer.decision))
    if answer.word == "superseded":  # it was stale, and another hook has taken its place
        return StopView(state="busy", guard=ref.id, why="another stop has replaced this one")
    return None


def _change(
    engine: SessionContext,
    ref: SessionRef,
    apply: Callable[[GuardState], Turn],
    kind: str,
    event: Mapping[str, JsonValue],
    *,
    frees: bool = False,
) -> bool:
    """Write the state that follows the one as it is now. Returns False for an ended guard."""
    for _ in range(TRIES):
        stored = engine.store.values(ref, "guard", ["state", "version"])
        turn = apply(parse_state(stored.get("state")))
        arguments: dict[str, JsonValue] = {
            "version": int(stored.get("version", 0)),
            "kind": kind,
            "event": dict(event),
            "warnings": list(turn.warnings) or None,
            "frees": frees or None,
            "idle_ms": IDLE_S * 1000,
        }
        text = turn.state.model_dump_json()
        answer = engine.transitions.run("guard_write", ref, arguments, outcome=text)
        if answer.word != "changed":
            return answer.word == "written"
    raise RuntimeError(f"guard {ref.id} changes all the time")


def _find_or_create(engine: SessionContext, guarded: Guarded) -> SessionRef:
    try:
        owner = guarded.counted_for
        session = engine.submit.program(PROGRAM, guarded.about, owner=owner).session
    except LabelTaken as taken:
        session = taken.session
    return SessionRef(session, session)


def _state(reply: Reply) -> GuardState:
    return parse_state(reply.guard)


def _event_fields(report: StopReport, decision: StopDecision) -> JsonValue:
    return {
        "stop": report.stop,
        "decision": decision.decision,
        "template": decision.template,
        "gate": decision.gate,
        "attempt": decision.attempt,
        "limit_reached": decision.limit_reached,
    }


_VERDICTS: dict[str, str] = {
    "passed": "accept",
    "failed": "retry",
    "unfinished": "retry",
    "skipped": "skipped",
}


def ledger_entry(
    number: int, report: StopReport, decision: StopDecision, why: str, now_ms: int
) -> str:
    """Builds the ledger entry (JSON record) of an agent's stop: retry if blocked, else accept.

    A stop that is allowed because of a limit is `max_iterations`, for the reason stop_limit.
    """
    entry = LedgerEntry(
        address=f"{LOOP}~1[{number}]",
        loop=LOOP,
        run=1,
        iteration=number,
        verdict=_verdict(decision),
        feedback=cut(decision.text, FEEDBACK),
        reason=_reason(decision),
        work=why,
        checks=_checks(report),
        ended_ms=now_ms,
    )
    unknown = {"cost_usd", "input_tokens", "output_tokens"}
    return entry.model_dump_json(exclude_none=True, exclude=unknown)


def _verdict(decision: StopDecision) -> str:
    if decision.decision == "block":
        return "retry"
    return "max_iterations" if decision.limit_reached else "accept"


def _reason(decision: StopDecision) -> Reason | None:
    """Why the stop was allowed, or that a limit is reached; guidance to continue has none."""
    if decision.limit_reached is not None:
        return Reason(code=ReasonCode.STOP_LIMIT, text=decision.text.partition("\n")[0], at=LOOP)
    if decision.decision == "block":
        return None
    code = ReasonCode.TIMEOUT if decision.template == "unfinished" else ReasonCode.ACCEPTED
    return Reason(code=code, text=decision.text.partition("\n")[0], at=LOOP)


def _checks(report: StopReport) -> list[dict[str, JsonValue]]:
    return [
        {
            "name": gate.name,
            "verdict": _VERDICTS[gate.outcome],
            "outcome": gate.outcome,
            "feedback": cut(without_keys(gate.output), OUTPUT),
            "seconds": gate.seconds,
        }
        for gate in report.gates or ()
    ]


#: A guard without a stop for this long ends, completed.
IDLE_S = 7 * 24 * 3600
#: Guards of one body that have not ended: each turn of a loop may be a new session of its agent.
OPEN_INSIDE = 50
#: The longest that a budget allows: a guard ends by its idle time, not by the operator's budget.
_WALL_S = 365 * 24 * 3600
#: The loop of the ledger's entries, whose iterations are the stops.
LOOP = "stop"

PROGRAM = Program(
    name="stop guard",
    body=(
        Step(
            id=LOOP,
            action=Action.WAIT,
            label="the agent's next stop",
            inputs={"seconds": IDLE_S, "on": "stop"},
        ),
    ),
)


class Guarded(NamedTuple):
    """The agent that a guard belongs to: its own session, and the one whose body it is."""

    agent_session: str
    inside: str | None = None
    #: The token that asked for it.
    owner: Owner | None = None
    #: The guarded folder, in which its session is listed.
    folder: str = ""

    @property
    def about(self) -> About:
        """Build the fields of the session that stores the guard's state, one per agent session."""
        return About(
            kind="guard",
            name=self.agent_session,
            listed_in=self.folder,
            label=inside_label(self.inside),
            budget=Budget(wall_s=_WALL_S),
            # The label of a user has no NUL.
            unique_label=f"\0stop-guard:{self.inside or ''}:{self.agent_session}",
        )

    @property
    def counted_for(self) -> Owner | None:
        """Return the owner of the quota for guards: the caller, or the session around the agent."""
        if self.inside is None:
            return self.owner
        return Owner(f"guards-inside-{self.inside}", Quotas(max_sessions=OPEN_INSIDE))


def inside_label(session: str | None) -> str:
    """Returns a guard's label, `inside <session>`; '' if its agent runs in no session.

    >>> inside_label("0000000a"), inside_label(None)
    ('inside 0000000a', '')
    """
    return f"{_INSIDE}{session}" if session else ""
