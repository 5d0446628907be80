"""Stops, events and resets of Stop guards: each reads the state, decides, and writes it at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import JsonValue

from app.domain.guards.decisions import (
    GuardState,
    Turn,
    attempt_of,
    begin_prompt,
    decide,
    decide_early,
    reset,
)
from app.domain.guards.texts import CHILDREN
from app.domain.ids import SessionRef
from app.domain.records import Reply
from app.errors import LabelTaken
from app.operations.guards.ledger import ledger_entry
from app.operations.guards.program import IDLE_S, PROGRAM, Guarded
from app.operations.submit import Submissions
from app.operations.transitions import Transitions
from app.queries.guards import GuardQueries, parse_state
from app.store.store import Store
from leadhand.models.guards import AgentEvent, GateResult, StopReport
from leadhand.models.views import GuardReset, StopDecision, StopView

#: Attempts to write a state that other calls change meanwhile.
TRIES = 50


class Guards:
    """Answers hooks. All methods raise StoreAway."""

    def __init__(
        self,
        store: Store,
        submit: Submissions,
        transitions: Transitions,
        reads: GuardQueries,
    ) -> None:
        self._store = store
        self._submit = submit
        self._transitions = transitions
        self._reads = reads

    def stop(self, guarded: Guarded, report: StopReport) -> StopView:
        """Answer an agent that wants to stop: run the gates first, or allow or block the stop.

        One hook of an agent session runs at a time; one that is older than its stale timeout is
        replaced. The same stop again gets the same decision. Raises QuotaPassed for a new agent
        session that its caller's quota has no room for.
        """
        for _ in range(TRIES):
            ref = self._find_or_create(guarded)
            arguments: dict[str, JsonValue] = {
                "stop": report.stop,
                "stale_ms": round(report.limits.stale_s * 1000),
            }
            answer = self._transitions.run("guard_begin", ref, arguments)
            if answer.word == "repeated":
                return StopView.model_validate_json(str(answer.decision))
            if answer.word == "busy":
                return StopView(state="busy", guard=ref.id, why="Stop hook already running")
            known = self._with_children(guarded.inside, report)
            view = self._answer(ref, known, answer) if answer.word == "begun" else None
            if view is not None:
                return view
        raise RuntimeError(f"the guard of {guarded.agent_session!r} changes all the time")

    def _with_children(self, session: str | None, report: StopReport) -> StopReport:
        """The report with a gate that fails while children of the agent's session are at work."""
        gates = report.gates
        if session is None or gates is None or CHILDREN in {gate.name for gate in gates}:
            return report
        children = self._reads.children_at_work(session)
        if not children:
            return report
        gate = GateResult(name=CHILDREN, outcome="failed", output="\n".join(children))
        return report.model_copy(update={"gates": (*gates, gate)})

    def note(self, guarded: Guarded, event: AgentEvent) -> None:
        """Record a prompt or idle event of an agent, which ends a series of consecutive blocks."""
        for ref in self._reads.open_guards(guarded.agent_session, inside=guarded.inside):

            def apply(state: GuardState) -> Turn:
                return begin_prompt(state, event.prompt_id, event=event.event)

            self._change(ref, apply, "guard.event", {"event": event.event})

    def reset(self, agent_session: str | None, *, by: str) -> GuardReset:
        """Reset the limit counters of one agent session's Stop guards, or all; returns how many.

        It also frees their hooks.
        """
        count = 0
        for ref in self._reads.open_guards(agent_session):

            def apply(state: GuardState) -> Turn:
                return Turn(reset(state))

            count += self._change(ref, apply, "guard.reset", {"by": by}, frees=True)
        return GuardReset(reset=count)

    def _answer(self, ref: SessionRef, report: StopReport, begun: Reply) -> StopView | None:
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
        answer = self._transitions.run("guard_write", ref, arguments, outcome=text, ledger=entry)
        if answer.word == "written":
            return view
        if answer.word == "repeated":
            return StopView.model_validate_json(str(answer.decision))
        if answer.word == "superseded":  # it was stale, and another hook has taken its place
            return StopView(state="busy", guard=ref.id, why="another stop has replaced this one")
        return None

    def _change(
        self,
        ref: SessionRef,
        apply: Callable[[GuardState], Turn],
        kind: str,
        event: Mapping[str, JsonValue],
        *,
        frees: bool = False,
    ) -> bool:
        """Write the state that follows the one as it is now. Returns False for an ended guard."""
        for _ in range(TRIES):
            stored = self._store.values(ref, "guard", ["state", "version"])
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
            answer = self._transitions.run("guard_write", ref, arguments, outcome=text)
            if answer.word != "changed":
                return answer.word == "written"
        raise RuntimeError(f"guard {ref.id} changes all the time")

    def _find_or_create(self, guarded: Guarded) -> SessionRef:
        try:
            owner = guarded.counted_for
            session = self._submit.program(PROGRAM, guarded.about, owner=owner).session
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
