"""The engine, one in every process: what submits, steers, reads and carries out, in one hand.

Each part has a room of its own; here they are put together, with what goes from one to another.
"""

from __future__ import annotations

from pydantic import JsonValue

from app import decide
from app.adopting import Adopting
from app.answering import give_answer
from app.catalog import Catalog
from app.errands import (
    deliver,
    is_unheard,
    look_at_child,
    parent_of,
    run_errand,
    tell_of_deletion,
)
from app.errors import LeadhandError, ProgramStale, StoreAway, StoreFull
from app.explaining import Explainer
from app.fsck import Fsck
from app.keys import SessionRef
from app.limiting import Limiting, SeenLimit
from app.outcomes import Outcome, writable
from app.program import Action, Program, path_of
from app.reading import Reader
from app.receipts import Receipts
from app.records import Answer
from app.redaction import without_keys
from app.registry import Facts, Registry
from app.settings import Settings
from app.steering import Control, Seen, Steering
from app.store import Store
from app.submitting import About, Submitting
from app.tokens import Tokens
from app.transcript import UNANSWERED, records_of
from app.transitions import Carrier, Transitions
from app.views import SessionView
from app.watching import Watch
from app.widths import expansion
from app.working import Working, told

__all__ = [
    "About",
    "Carrier",
    "Control",
    "Engine",
    "Facts",
    "Seen",
    "SeenLimit",
]


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
        self._work()
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

    def _work(self) -> None:
        """What workers ask."""
        working = Working(self.store, self.settings, self.registry, self.transitions)
        self.claim = working.claim
        self.work = working.work
        self.step = working.step
        self.bare_work = working.bare_work
        self.said = working.said
        self.refuse = working.refuse
        self.beat = working.beat
        self.left = working.left
        self.settle = working.settle
        self.settle_all = working.settle_all
        self.release = working.release
        self.move_lock = working.move_lock
        self.park = working.park

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
                **told(shown),
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


def _without_keys(outcome: Outcome) -> Outcome:
    """As events and the transcript show it; the step that needs a key is given it all the same."""
    prompt = None if outcome.prompt is None else without_keys(outcome.prompt)
    return outcome.model_copy(update={"text": without_keys(outcome.text), "prompt": prompt})
