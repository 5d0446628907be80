"""The engine, one in every process: what submits, steers, reads and carries out, in one hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import JsonValue

from app import decide
from app.adopting import Adopting
from app.answering import give_answer
from app.catalog import Catalog
from app.conversations import Said, said_until
from app.errands import (
    deliver,
    is_unheard,
    look_at_child,
    parent_of,
    run_errand,
    tell_of_deletion,
)
from app.errors import LeadhandError, ProgramStale, SpecForeign, StoreAway, StoreFull
from app.explaining import Explainer
from app.fsck import Fsck
from app.inputs import resolved
from app.keys import SessionRef, lock_name
from app.ledger import entry_of
from app.limiting import Limiting, SeenLimit
from app.outcomes import Busy, Outcome, Thread, Usage, writable
from app.program import SCHEMA_VERSION, Action, Program, Step, block_of, path_of, turn_of
from app.progress import standing_of
from app.reading import Reader
from app.reasons import Reason, ReasonCode
from app.receipts import Receipts
from app.records import Answer, Grant
from app.redaction import without_keys
from app.registry import Facts, Registry
from app.retry import quoted_error
from app.settings import Settings
from app.signing import fetched_order
from app.steering import Control, Seen, Steering
from app.store import Given, Store
from app.submitting import About, Submitting
from app.tokens import Tokens
from app.transcript import UNANSWERED, question_of, records_of
from app.transitions import Carrier, Transitions
from app.views import SessionView
from app.watching import Watch
from app.widths import expansion

__all__ = [
    "About",
    "Carrier",
    "Control",
    "Engine",
    "Facts",
    "Seen",
    "SeenLimit",
    "Settling",
    "Work",
]

#: How much of a text goes into events, for those who watch.
TEASER = 200


class Work(NamedTuple):
    """A step in a worker's hands: everything that its body needs."""

    ref: SessionRef
    grant: Grant
    step: Step
    inputs: dict[str, JsonValue]
    facts: Facts
    #: The working folder, where the session has one; a step may work beneath it.
    cwd: Path | None

    @property
    def locks_another(self) -> Path | None:
        """The folder's real path, where the session's lock is that of another path."""
        if self.facts.cwd is None or not self.step.folder or not self.facts.folder:
            return None
        real = Path(self.facts.cwd).resolve()
        held = lock_name(f"folder:{self.facts.place}:{real}")
        return real if held != self.facts.folder else None


class Settling(NamedTuple):
    """An attempt that is to be settled, as `Engine.settle` is told of it."""

    work: Work
    outcome: Outcome
    take: Sequence[str]
    patch: str | None = None
    changed: bool = False


class Left(NamedTuple):
    """A working folder as the last attempt left it."""

    digest: str | None
    #: Whether the session was stopped since, so that somebody may have changed it.
    compare: bool


class Engine:
    """One per process. All methods raise StoreAway while Redis does not answer."""

    def __init__(self, store: Store, carrier: Carrier, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self._carrier = carrier
        self.registry = Registry(store, settings)
        self.transitions = Transitions(store, carrier, self.registry)
        self.transitions.errand = self.run_errand
        self.program = self.registry.program
        self.catalog = Catalog(settings.flows)
        self.reader = Reader(store, self.program, self.catalog)
        self.tokens = Tokens(store.tokens(), secret=settings.secret)
        self._read()
        self._write()
        self.receipt = Receipts(store).receipt
        self.explain = Explainer(
            store, self.program, workers=self.workers, depths=carrier.depths
        ).explain
        self.fsck = Fsck(store, self.transitions, carrier, self.workers).look
        self.watch = Watch(store, depths=carrier.depths, workers=self.workers)

    def _read(self) -> None:
        """What readers ask for, under the engine's own name."""
        self.session = self.reader.session
        self.sessions = self.reader.sessions
        self.walk = self.reader.walk
        self.result = self.reader.result
        self.export = self.reader.export
        self.steps = self.reader.steps
        self.ledger = self.reader.ledger
        self.diffs = self.reader.diffs
        self.transcript = self.reader.transcript
        self.transcript_text = self.reader.transcript_text
        self.events = self.reader.events
        self.events_many = self.reader.events_many
        self.workers = self.reader.workers
        self.agents = self.reader.agents
        self.tools = self.reader.tools
        self.flows = self.catalog.flows
        self.flow = self.catalog.flow
        self.ping = self.store.ping

    def _write(self) -> None:
        """What clients ask for, the same way."""
        submitting = Submitting(
            self.store, self.settings, self.registry, self.transitions, self.workers, self.catalog
        )
        steering = Steering(self.store, self.registry, self.transitions, self.reader)
        limiting = Limiting(self.store, self.transitions)
        adopting = Adopting(self.store, self.registry, steering, self.catalog, submitting)
        self.resume_as_new = adopting.resume_as_new
        self.submit = submitting.submit
        self.run_flow = submitting.run_flow
        self.check_flow = submitting.check_flow
        self.start = submitting.start
        self.steering = steering
        self.control = steering.control
        self.follow = steering.follow
        self.abort_below = steering.abort_below
        self.poke = steering.poke
        self.rehome = steering.rehome
        self.choose_again = steering.choose_again
        self.limit = limiting.limit
        self.unlimit = limiting.unlimit
        self.limits = limiting.limits
        self.limit_of = limiting.limit_of
        self.stands = steering.stands
        self._delete = steering.delete
        self.end_for_good = steering.end_for_good
        self.publish = self.transitions.publish
        self.rehint = self.transitions.rehint

    # What workers ask

    def claim(self, ref: SessionRef, address: str, *, nonce: str, worker: str) -> Answer:
        """Ask for a step: granted, refused (why) or superseded."""
        arguments: dict[str, JsonValue] = {
            "address": address,
            "nonce": nonce,
            "worker": worker,
            "lease_ms": self.settings.lease_ms,
            "schema": SCHEMA_VERSION,
            "place": self.settings.place,
        }
        answer = self.transitions.run("claim", ref, arguments)
        self.transitions.dispatch(ref, answer)
        if answer.why == "place":
            with suppress(StoreAway):
                self.rehint(ref, address, depth=0)  # on the queue of the right place
        return answer

    def work(self, ref: SessionRef, grant: Grant) -> Work:
        """All that the body of a granted step needs. Raises ReferenceUnresolved, SpecForeign."""
        facts = self.registry.facts(ref)
        program = self.registry.genuine(ref, facts)
        step = program.step(grant.address)
        fetched = fetched_order(step.inputs)
        if fetched is not None:
            raise SpecForeign(ref.id, f"{fetched} would come from an outcome, which nobody signs")
        inputs = resolved(self.store, ref, program, step, grant)
        beneath = str(inputs.get("working_folder") or "")
        cwd = Path(facts.cwd, beneath) if facts.cwd else None
        return Work(ref, grant, step, inputs, facts, cwd)

    def step(self, ref: SessionRef, address: str) -> Step:
        """What the session's program says of a step."""
        return self.program(self.registry.facts(ref).program).step(address)

    def bare_work(self, ref: SessionRef, grant: Grant) -> Work:
        """The same without its inputs, for a step whose inputs cannot be read."""
        facts = self.registry.facts(ref)
        step = self.program(facts.program).step(grant.address)
        return Work(ref, grant, step, {}, facts, Path(facts.cwd) if facts.cwd else None)

    def said(self, ref: SessionRef, turn: str) -> list[Said]:
        """What was said in a conversation of the session up to a turn, oldest first."""
        return said_until(turn, lambda at: self.store.values(ref, "out", [at]).get(at))

    def refuse(
        self, ref: SessionRef, grant: Grant, *, why: str, usage: Usage | None = None
    ) -> Answer:
        """Fail a granted step without a look at its program; what the attempt used counts.

        For one whose program cannot be trusted, and where something broke that should not.
        """
        reason = Reason(code=ReasonCode.FAILED_STEP, text=why, at=grant.address)
        outcome = writable(
            Outcome(word="failed", text=why, reason=reason, retryable=False, usage=usage)
        )
        text = outcome.model_dump_json(exclude_none=True)
        arguments = self._holder(grant) | _said(outcome) | {"take": []}
        answer = self.transitions.run("settle", ref, arguments, outcome=text)
        self.transitions.after(ref, answer)
        return answer

    def beat(self, ref: SessionRef, grant: Grant, *, spent: Usage | None = None) -> Answer:
        """Extend the lease: ok, stop, cancel or lost; what was used so far counts at once."""
        more: dict[str, JsonValue] = {"spent": None if spent is None else _counted(spent)}
        answer = self.transitions.run("beat", ref, self._holder(grant) | more)
        self.transitions.after(ref, answer)
        return answer

    def left(self, ref: SessionRef) -> Left:
        """What the session's folder was like when somebody worked there last."""
        found = self.store.values(ref, "session", ["digest", "compare"])
        return Left(found.get("digest"), "compare" in found)

    def settle(
        self,
        work: Work,
        outcome: Outcome,
        *,
        take: Sequence[str],
        worker: str,
        patch: str | None = None,
        changed: bool = False,
    ) -> Answer:
        """Record what came of an attempt, once; quick steps that follow are granted to `take`.

        `patch` is what it changed in its folder, `changed` whether that was another one before.
        The answer is settled, again (it is tried anew), repeated or superseded; its hints are the
        caller's to dispatch.
        """
        given = self._settling(Settling(work, outcome, take, patch, changed), worker)
        answer = self.transitions.run(
            "settle",
            work.ref,
            given.arguments,
            outcome=given.outcome,
            ledger=given.ledger,
            said=given.said,
        )
        self.transitions.after(work.ref, answer)
        return answer

    def settle_all(self, each: Sequence[Settling], *, worker: str) -> list[Answer]:
        """Settle attempts of one session in one round trip, each as `settle` does.

        Where an error is raised any of them may be settled: settle each again by itself.
        """
        ref = each[0].work.ref
        given = [self._settling(one, worker) for one in each]
        answers = self.transitions.run_all("settle", ref, given)
        for answer in answers:
            self.transitions.after(ref, answer)
        return answers

    def _settling(self, one: Settling, worker: str) -> Given:
        work = one.work
        ref, grant = work.ref, work.grant
        program = self.program(work.facts.program)
        expand, outcome = expansion(program, grant.address, writable(one.outcome))
        arguments = self._holder(grant) | _said(outcome)
        arguments |= {
            "worker": worker,
            "take": list(one.take),
            "expand": expand or None,
            "patch": one.patch,
            "changed": one.changed or None,
            "jitter": 0.5 + random.random() / 2,  # noqa: S311  # spreads retries, guards nothing
        }
        entry = entry_of(work.step, grant, ref.id, work.inputs, outcome)
        if entry is not None:
            arguments["ledger"] = turn_of(block_of(grant.address))
            standing = standing_of(work.inputs, outcome)
            arguments |= standing._asdict() if standing is not None else {}
        return Given(
            arguments,
            outcome=outcome.model_dump_json(exclude_none=True),
            ledger=entry or "",
            said=records_of(work.step, grant.address, outcome, attempt=grant.attempt),
        )

    def release(
        self,
        ref: SessionRef,
        grant: Grant,
        *,
        why: str,
        usage: Usage | None = None,
        digest: str | None = None,
    ) -> Answer:
        """Hand an attempt back, not counted; what it used is."""
        arguments = self._holder(grant) | {
            "why": why,
            "usage": _counted(usage) if usage is not None else None,
            "digest": digest,
        }
        answer = self.transitions.run("release", ref, arguments)
        self.transitions.dispatch(ref, answer)
        return answer

    def move_lock(self, work: Work, folder: Path) -> Answer:
        """Let the session's lock be that of the folder's real path, as only its place can tell.

        The answer is released where the step is to wait for that lock, and kept where it goes on.
        """
        name = lock_name(f"folder:{work.facts.place}:{folder}")
        why = "its folder has another real path"
        arguments = self._holder(work.grant) | {"why": why, "folder": name}
        answer = self.transitions.run("release", work.ref, arguments)
        self.registry.forget_facts()
        self.transitions.dispatch(work.ref, answer)
        return answer

    def park(
        self,
        work: Work,
        *,
        on: Literal["human", "wait", "child"],
        wait_ms: int,
        child: SessionRef | None = None,
        question: JsonValue = None,
    ) -> Answer:
        """Let a step wait without a worker: parked (fence), ended (its child has), superseded."""
        if isinstance(question, str):
            question = without_keys(question)
        arguments = self._holder(work.grant) | {
            "on": on,
            "until_ms": self.store.now_ms() + wait_ms,
            "question": question,
        }
        if child is not None:
            arguments |= {"child": child.id, "child_base": self.store.keys.base(child)}
        said = question_of(work.step, work.grant.address, question, attempt=work.grant.attempt)
        answer = self.transitions.run("park", work.ref, arguments, said=said)
        self.transitions.dispatch(work.ref, answer)
        return answer

    def give(
        self, session: str, text: str, *, address: str | None = None, by: str = "a person"
    ) -> SessionView:
        """A person's answer to a question. Raises SessionUnknown, AnswerUnwanted."""
        give_answer(self, session, text, address, by=by)
        return self.session(session)

    def delete(
        self, session: str, *, force: bool = False, seen: Seen | None = None
    ) -> SessionView | None:
        """Forget an ended session, as Steering.delete does; who waits for it is told of its end.

        A process that dies in between leaves that to the look at who has waited for long. While
        the server is full, only those go whose word was heard.
        """
        ref = self.registry.ref(session)
        parent = parent_of(self, ref)
        if parent:
            try:
                deliver(self, ref)
            except StoreFull:
                if is_unheard(self, ref, parent):
                    raise  # it would be lost with the session
        view = self._delete(session, force=force, seen=seen)
        if view is None and parent:
            tell_of_deletion(self, ref, parent)
        return view

    def answer(
        self,
        ref: SessionRef,
        address: str,
        outcome: Outcome,
        *,
        fence: int,
        by: str,
        child: str | None = None,
    ) -> Answer:
        """Give a parked step what it waits for: settled, or superseded (who was first)."""

        def run(name: str) -> Answer:
            program = self.program(name)
            if not program.has(path_of(address)):
                raise ProgramStale
            expand, final = expansion(program, address, writable(outcome))
            shown = _without_keys(final)
            arguments: dict[str, JsonValue] = {
                "address": address,
                "fence": fence,
                "by": by,
                "child": child,
                "expand": expand or None,
                **_said(shown),
            }
            text = final.model_dump_json(exclude_none=True)
            said = records_of(program.step(address), address, shown)
            return self.transitions.run_of(name, "answer", ref, arguments, outcome=text, said=said)

        answer = self.transitions.by_its_program(ref, run)
        self.transitions.dispatch(ref, answer)
        return answer

    # What the sweeper asks

    def expire(self, ref: SessionRef, address: str, *, gone: str | None = None) -> Answer:
        """A lease or a parked step's time is over; at once where its worker is known to be gone."""
        arguments: dict[str, JsonValue] = {"address": address, "jitter": 1}
        if gone is not None:
            arguments["gone"] = gone
        said = self._unanswered(ref, address) if address else []
        answer = self.transitions.run("expire", ref, arguments, said=said)
        self.transitions.dispatch(ref, answer)
        if answer.word == "look" and answer.child is not None and answer.fence is not None:
            look_at_child(self, ref, address, child=answer.child, fence=answer.fence)
        return answer

    def depth(self, ref: SessionRef, address: str, known: dict[str, int]) -> int:
        """How many messages stand in the step's queue; `known` remembers within one sweep."""
        facts = self.registry.facts(ref)
        route = decide.queue_of(self._program_at(ref, address).step(address))
        queue = f"{route}@{facts.place}" if facts.place else route
        if queue not in known:
            known.update(self._carrier.depths([queue]))
        return known.get(queue, 0)

    def _unanswered(self, ref: SessionRef, address: str) -> list[str]:
        """What the transcript is told should a question's time be over."""
        try:
            program = self._program_at(ref, address)
        except StoreAway:
            raise
        except LeadhandError:
            return []  # it was forgotten meanwhile
        if not program.has(path_of(address)):
            return []
        step = program.step(address)
        return records_of(step, address, UNANSWERED) if step.action is Action.HUMAN else []

    def _program_at(self, ref: SessionRef, address: str) -> Program:
        """The session's program; looked at again where it has no such step."""
        program = self.program(self.registry.facts(ref).program)
        if program.has(path_of(address)):
            return program
        self.registry.forget_facts()
        return self.program(self.registry.facts(ref).program)

    def run_errand(self, errand: str) -> None:
        """Do what one session owes another; safe to repeat, done once it cannot matter."""
        run_errand(self, errand)

    def _holder(self, grant: Grant) -> dict[str, JsonValue]:
        return {
            "address": grant.address,
            "fence": grant.fence,
            "nonce": grant.nonce,
            "lease_ms": self.settings.lease_ms,
        }


def _without_keys(outcome: Outcome) -> Outcome:
    """As events and the transcript show it; the step that needs a key is given it all the same."""
    prompt = None if outcome.prompt is None else without_keys(outcome.prompt)
    return outcome.model_copy(update={"text": without_keys(outcome.text), "prompt": prompt})


def _said(outcome: Outcome) -> dict[str, JsonValue]:
    """What the script is told of an outcome."""
    reason = outcome.reason.model_dump(mode="json", exclude_none=True) if outcome.reason else None
    failed = outcome.word == "failed"
    return {
        "word": outcome.word,
        "verdict": outcome.verdict,
        "reason": reason,
        "retryable": outcome.retryable,
        "text": outcome.text[:TEASER],
        "failure": quoted_error(outcome.reason.text) if failed and outcome.reason else None,
        "usage": _counted(outcome.usage) if outcome.usage else None,
        "thread": _kept(outcome.thread) if outcome.thread else None,
        "digest": outcome.digest,
        "busy": _busy(outcome.busy) if outcome.busy else None,
    }


def _busy(busy: Busy) -> dict[str, JsonValue]:
    after = {} if busy.after_s is None else {"after_ms": round(busy.after_s * 1000)}
    return {"tries": busy.tries, **after}


def _kept(thread: Thread) -> dict[str, JsonValue]:
    """What is kept of a conversation; nothing of one that is forgotten."""
    return {} if thread.id is None else {"kept": thread.model_dump_json(exclude_none=True)}


def _counted(usage: Usage) -> dict[str, JsonValue]:
    """Usage as the counters have it."""
    return {
        "cost_micros": usage.cost_micros,
        "tokens_in": usage.input_tokens,
        "tokens_out": usage.output_tokens,
    }
