"""Settles parked steps with a person's answer or a child's end; the first one wins."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from pydantic import JsonValue

from app.context import Context
from app.core.addresses import SessionRef, iso, path_of
from app.core.outcomes import Outcome, Verdict, deleted_child, outcome_of_child, without_surrogates
from app.core.program import Action, Program, Step
from app.core.records import Reply, StepRecord
from app.core.routing import expansion
from app.core.states import PARENT_DID, SessionStatus
from app.errors import AnswerUnfit, ProgramStale
from app.history.points import steps_at
from app.history.transcript import records_of
from app.history.values import result_of_flow
from app.plans.edits import apply_fact, is_unapplied
from app.programs import Registry
from app.sessions.attempts import outcome_fields, without_credentials
from app.sessions.control import SessionControl
from app.sessions.queries import Queries
from app.store.store import Store
from app.transitions import Transitions
from leadhand.errors import AnswerUnwanted, ControlRefused, SessionUnknown
from leadhand.models.forms import FREE_TEXT, Accepted, AnswerRules, GivenAnswer, fit, parse_rules
from leadhand.models.views.session import SessionView

#: The `answered_by` of a question that timed out.
DEADLINE = "deadline"
#: Answers that approve the draft of a plan.
APPROVALS = frozenset({"approve", "approved", "accept", "ok", "yes"})
#: Zero-based positions in a flow's file; an iteration is named by its address.
_PLACE = re.compile(r"^\d+(/\d+)*$")
#: Maximum number of parked steps to read if none is named.
LOOKED_AT = 1000
#: Maximum depth of child sessions that are searched for questions.
DEPTH = 5
#: The end of a child in one of these statuses settles the step that waits for it.
REPORTED = (
    SessionStatus.COMPLETED,
    SessionStatus.FAILED,
    SessionStatus.EXITED,
    SessionStatus.ABORTED,
)
#: The inputs of steps that want the result of their child: those that call a flow or a session.
CALLED = frozenset({"flow", "session"})


class Answers:
    """Delivers answers to parked steps."""

    def __init__(
        self, store: Store, registry: Registry, transitions: Transitions, queries: Queries
    ) -> None:
        self._store = store
        self._registry = registry
        self._transitions = transitions
        self._queries = queries

    def give(
        self,
        session: str,
        given: str | GivenAnswer,
        *,
        address: str | None = None,
        by: str = "a person",
    ) -> SessionView:
        """Answer a session's open question; returns the session. Raises AnswerUnwanted.

        Raises AnswerUnfit if the question's rules do not accept it, and SessionUnknown. Repeating
        an answer changes nothing. If no step is waiting and none is named, the call refers to the
        question that was answered last: another client may have been faster.
        """
        ref = self._registry.ref(session)
        answer = GivenAnswer.model_construct(text=given) if isinstance(given, str) else given
        self._give(ref, answer, address, by=by)
        return self._queries.session(session)

    def give_default(self, ref: SessionRef, address: str, *, fence: int) -> None:
        """Answer an overdue question with its default, unless a person has answered it already."""
        record = self._store.steps(ref, [address]).get(address)
        if record is None or record.fence != fence or record.parked is None:
            return
        rules = parse_rules(record.parked.get("rules"))
        accepted = None if rules.default is None else fit(rules, rules.default)
        if isinstance(accepted, Accepted):
            question = record.parked.get("question")
            outcome = Outcome(
                word="succeeded",
                text=accepted.text,
                value=accepted.value,
                prompt=question if isinstance(question, str) else None,
            )
            self.settle(ref, address, outcome, fence=fence, by=DEADLINE)

    def settle(
        self,
        ref: SessionRef,
        address: str,
        outcome: Outcome,
        *,
        fence: int,
        by: str,
        child: str | None = None,
        plan_version: int | None = None,
    ) -> Reply:
        """End a parked (waiting) step with an outcome; replies `settled`, `superseded` or `stale`.

        `superseded` means that it was settled before. With `plan_version` it replies `stale` if the
        session's plan has another version now.
        """

        def run(name: str) -> Reply:
            program = self._registry.program(name)
            if not program.has(path_of(address)):
                raise ProgramStale
            expand, final = expansion(program, address, without_surrogates(outcome))
            shown = without_credentials(final)
            arguments: dict[str, JsonValue] = {
                "address": address,
                "fence": fence,
                "by": by,
                "child": child,
                "expand": expand or None,
                "plan_version": plan_version,
                **outcome_fields(shown),
            }
            text = final.model_dump_json(exclude_none=True)
            records = records_of(program.step(address), address, shown)
            return self._transitions.run_with(
                name, "answer", ref, arguments, outcome=text, transcript=records
            )

        answer = self._transitions.with_program(ref, run)
        self._transitions.dispatch(ref, answer)
        return answer

    def _give(self, ref: SessionRef, given: GivenAnswer, address: str | None, *, by: str) -> None:
        asking = self.questions(ref)
        if address is None:
            found = _only(ref.id, asking) or self._last_answered(ref)
        else:
            found = self._resolve(ref, address, asking)
        if found is None:
            raise AnswerUnwanted(ref.id, self._no_question_text(ref))
        accepted = fit(self._rules(ref, found), given)
        if found not in asking:
            fitting = accepted if isinstance(accepted, Accepted) else None
            return self._require_same_answer(ref, found, fitting)
        if not isinstance(accepted, Accepted):
            raise AnswerUnfit(ref.id, found, accepted)
        outcome = Outcome(
            word="succeeded",
            text=accepted.text,
            value=accepted.value,
            verdict=self._verdict(ref, found, accepted.text),
            prompt=self._question(ref, found),
        )
        answer = self.settle(ref, found, outcome, fence=asking[found], by=by)
        if answer.word == "default":
            self.give_default(ref, found, fence=asking[found])
        if answer.word != "settled":
            self._require_same_answer(ref, found, accepted)
        return None

    def _rules(self, ref: SessionRef, address: str) -> AnswerRules:
        """What a question accepts: as it was asked, or for one that has ended as it is written."""
        record = self._store.steps(ref, [address]).get(address)
        if record is not None and record.parked is not None:
            return parse_rules(record.parked.get("rules"))
        step = self._registry.program(self._registry.facts(ref).program).step_or_none(address)
        return FREE_TEXT if step is None else parse_rules(step.inputs.get("rules"))

    def _verdict(self, ref: SessionRef, address: str, text: str) -> Verdict | None:
        """What an answer decides: `approve` approves a plan's draft, another text does not."""
        program = self._registry.program(self._registry.facts(ref).program)
        if "draft" not in program.step(address).inputs:
            return None
        return "accept" if text.strip().lower() in APPROVALS else "retry"

    def questions(self, ref: SessionRef) -> dict[str, int]:
        """Return the addresses of steps that wait for a person, each with its fence number."""
        parked = self._store.members(ref, "parked", LOOKED_AT)
        return {
            address: record.fence
            for address, record in self._store.steps(ref, parked).items()
            if record.parked is not None and record.parked.get("on") == "human"
        }

    def _no_question_text(self, ref: SessionRef) -> str:
        """The error text if no step waits for a person; names child sessions that do."""
        hint = "none of its steps waits for a person"
        asking = sorted(child.id for child in self._below(ref) if self.questions(child))
        if not asking:
            return hint
        return f"{hint}, but of the sessions below it: answer {', '.join(asking)}"

    def _below(self, ref: SessionRef, deeper: int = DEPTH) -> Iterator[SessionRef]:
        """Yields the child sessions that its steps wait for, recursively."""
        parked = self._store.members(ref, "parked", LOOKED_AT)
        for record in self._store.steps(ref, parked).values():
            child = (record.parked or {}).get("child")
            if isinstance(child, str):
                yield SessionRef(child, ref.root)
                if deeper:
                    yield from self._below(SessionRef(child, ref.root), deeper - 1)

    def _question(self, ref: SessionRef, address: str) -> str | None:
        """The question of a parked step, for the transcript."""
        record = self._store.steps(ref, [address]).get(address)
        question = record.parked.get("question") if record and record.parked else None
        return question if isinstance(question, str) else None

    def _resolve(self, ref: SessionRef, said: str, asking: Iterable[str]) -> str:
        """Resolves a name to the address of a question: a waiting one, or else the last one."""
        if said in asking:
            return said
        program = self._registry.program(self._registry.facts(ref).program)
        waiting = [address for address in asking if _has_name(program, address, said)]
        if len(waiting) > 1:
            raise _several(ref.id, waiting)
        if waiting:
            return waiting[0]
        if _is_question(program, said) and said in self._store.steps(ref, [said]):
            return said
        had = [a for a in self._store.names(ref, "steps") if _has_name(program, a, said)]
        records = self._store.steps(ref, [a for a in had if _is_question(program, a)])
        return max(records, key=lambda address: records[address].ended or 0, default=said)

    def _last_answered(self, ref: SessionRef) -> str | None:
        """The question that was answered last, if any."""
        program = self._registry.program(self._registry.facts(ref).program)
        asked = [one for one in self._store.names(ref, "steps") if _is_question(program, one)]
        records = self._store.steps(ref, asked)
        answered = {one: record.ended or 0 for one, record in records.items() if record.answered_by}
        return max(answered, key=lambda one: answered[one], default=None)

    def _require_same_answer(
        self, ref: SessionRef, address: str, accepted: Accepted | None
    ) -> None:
        """Raises AnswerUnwanted unless the step already has this answer."""
        record = self._store.steps(ref, [address]).get(address)
        if record is None:
            steps = ", ".join(sorted(self.questions(ref))) or "none"
            hint = f"it has no step {address!r}; steps that wait for a person: {steps}"
            raise AnswerUnwanted(ref.id, hint)
        outcome = self._store.values(ref, "out", [address]).get(address)
        if record.given is not None:  # it counts once the folder was compared
            outcome = record.given.outcome
        program = self._registry.program(self._registry.facts(ref).program)
        if _is_question(program, address) and record.state == "parked":
            hint = (
                "its deadline has passed, and the session is stopped; resume it to be asked again"
            )
            raise AnswerUnwanted(ref.id, hint)
        if not _is_question(program, address) or record.answered_by is None:
            raise AnswerUnwanted(ref.id, f"step {address!r} is {record.state}")
        stored = {} if outcome is None else json.loads(outcome)
        if accepted == Accepted(stored.get("text", ""), stored.get("value")):
            return
        raise AnswerUnwanted(ref.id, _answered_text(address, record))


def _only(session: str, asking: dict[str, int]) -> str | None:
    if not asking:
        return None
    if len(asking) > 1:
        raise _several(session, asking)
    return next(iter(asking))


def _several(session: str, asking: Iterable[str]) -> AnswerUnwanted:
    steps = ", ".join(sorted(asking))
    return AnswerUnwanted(session, f"several of its steps wait; name one of: {steps}")


def _has_name(program: Program, address: str, said: str) -> bool:
    """Whether a name is the step's label, its path, or its position in the flow's file."""
    step = program.step_or_none(address)
    if step is None:
        return False
    if said in (step.label, path_of(address)):
        return True
    places = steps_at(program, said.split("/")) if _PLACE.match(said) else []
    return step.origin is not None and step.origin.path in places


def _is_question(program: Program, address: str) -> bool:
    step = program.step_or_none(address)
    return step is not None and step.action is Action.HUMAN


def _answered_text(address: str, record: StepRecord) -> str:
    """Text that says who answered a question, and when."""
    at = f" at {iso(record.ended)}" if record.ended else ""
    if record.answered_by == DEADLINE:
        return f"step {address!r} is {record.state}: its deadline passed{at}"
    return f"another answer came first: step {address!r} was answered by {record.answered_by}{at}"


class ChildReports:
    """Reports from child sessions to their parents. Each may be repeated."""

    def __init__(
        self,
        engine: Context,
        control: SessionControl,
        answers: Answers,
    ) -> None:
        self._engine = engine
        self._store = engine.store
        self._control = control
        self._answers = answers

    def deliver(self, child: SessionRef) -> None:
        """Report a child session's stop or end to its parent: settle its step, or update its plan.

        A task of a plan is no step: its end, and its resume, change the plan.
        """
        fields = self._store.fields(child)
        parent = json.loads(fields.get("parent") or "{}")
        if parent.get("task"):
            with suppress(SessionUnknown):
                apply_fact(self._engine, child, fields, parent)
                above = SessionRef(parent["session"], child.root)
                self._control.poke(above, parent["address"], child=child.id)
        elif parent:
            with suppress(SessionUnknown):  # the parent was deleted
                self._report(child, fields, parent)

    def look_at_child(self, ref: SessionRef, address: str, *, child: str, fence: int) -> None:
        """Report a child session again to its waiting step; settle that if it was deleted."""
        if self._store.fields(SessionRef(child, ref.root)):
            self.deliver(SessionRef(child, ref.root))
        else:
            self._answers.settle(ref, address, deleted_child(child), fence=fence, by=child)

    def outcome_for(
        self, step: Step | None, child: SessionRef, fields: Mapping[str, str]
    ) -> Outcome:
        """Build the outcome of a step whose child session ended."""
        if step is None or not step.inputs.keys() & CALLED or fields.get("status") != "completed":
            return outcome_of_child(child.id, fields)
        program = self._engine.registry.program(fields["program"])
        result = result_of_flow(self._store, child, program)
        outcome = outcome_of_child(child.id, fields, result.value)
        if result.artifact is None:
            return outcome
        return outcome.model_copy(update={"artifacts": (result.artifact,)})

    def parent_of(self, child: SessionRef) -> dict[str, str]:
        """Return the ids of the session and step that started a child session; {} if none."""
        found: dict[str, str] = json.loads(self._store.fields(child).get("parent") or "{}")
        return found

    def is_undelivered(self, child: SessionRef, parent: Mapping[str, str]) -> bool:
        """Whether a child session's end has not been applied to its parent's step or plan."""
        if self._store.errand_score(f"deliver|{child.member}") is not None:
            return True
        if parent.get("task"):
            return is_unapplied(self._engine, child, parent)
        return self._waiting_step(child, parent) is not None

    def report_deletion(self, child: SessionRef, parent: Mapping[str, str]) -> None:
        """Settle the parent's step that waits for a deleted child, or fail its plan's task."""
        if parent.get("task"):
            with suppress(SessionUnknown):
                apply_fact(self._engine, child, {"status": "deleted"}, parent)
            return
        step = self._waiting_step(child, parent)
        if step is not None:
            ref = SessionRef(parent["session"], child.root)
            self.look_at_child(ref, parent["address"], child=child.id, fence=step.fence)

    def _report(
        self, child: SessionRef, fields: Mapping[str, str], parent: Mapping[str, str]
    ) -> None:
        ref, address = SessionRef(parent["session"], child.root), parent["address"]
        if fields.get("status") in REPORTED or self._was_stopped_alone(ref, fields, parent):
            step = self._waiting_step(child, parent)
            if fields["status"] == SessionStatus.EXITED and self._is_of_a_doer(ref, parent):
                with suppress(ControlRefused):  # the attempt that started it has ended
                    self._control.exit_of_child(ref, parent, child.id, fields.get("reason"))
            if step is not None:
                program = self._engine.registry.program(self._engine.registry.facts(ref).program)
                outcome = self.outcome_for(program.step_or_none(address), child, fields)
                self._answers.settle(
                    ref, address, outcome, fence=step.fence, by=child.id, child=child.id
                )
        self._control.poke(ref, address, child=child.id)

    def _was_stopped_alone(
        self, ref: SessionRef, fields: Mapping[str, str], parent: Mapping[str, str]
    ) -> bool:
        """Whether a user stopped the child but not its parent, and the parent can continue.

        A parent that is stopping or stopped takes its child along when it is resumed. A parent
        whose step is critical waits until the child is resumed: it cannot continue without it.
        """
        if fields.get("status") != SessionStatus.STOPPED:
            return False
        reason = json.loads(fields.get("reason") or "{}")
        if reason.get("text") == PARENT_DID:
            return False
        above = self._store.fields(ref)
        if above.get("status") != SessionStatus.ACTIVE:
            return False
        step = self._engine.registry.program(above["program"]).step_or_none(parent["address"])
        return step is not None and not step.critical

    def _is_of_a_doer(self, ref: SessionRef, parent: Mapping[str, str]) -> bool:
        """Whether a body started the child; otherwise a step did, and the child is a subflow."""
        program = self._engine.registry.program(self._engine.registry.facts(ref).program)
        step = program.step_or_none(parent["address"])
        return step is not None and step.action is not Action.CHILD

    def _waiting_step(self, child: SessionRef, parent: Mapping[str, str]) -> StepRecord | None:
        """The step that waits for a child; None if no step does."""
        ref, address = SessionRef(parent["session"], child.root), parent["address"]
        step = self._store.steps(ref, [address]).get(address)
        waits = step is not None and step.parked and step.parked.get("child") == child.id
        return step if waits else None
