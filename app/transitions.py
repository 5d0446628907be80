"""Runs transitions and acts on their replies: sends hints, notifies waiters, delivers messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.program import Program
from app.core.records import Carrier, Hint, Reply
from app.errors import ProgramStale
from app.programs import Registry
from app.store.script_library import Verb
from app.store.script_runner import Call
from app.store.store import Store
from leadhand.errors import ProgramNewer, SessionUnknown, StoreAway

log = logging.getLogger(__name__)


class Transitions:
    """Runs transitions for all operations."""

    def __init__(self, store: Store, carrier: Carrier, registry: Registry) -> None:
        self._store = store
        self._carrier = carrier
        self._registry = registry
        #: Handles a message of the outbox; the engine sets it, the sweeper repeats what fails.
        self.deliver: Callable[[str], None] = _leave_to_sweep

    def run(
        self,
        verb: Verb,
        ref: SessionRef,
        arguments: Mapping[str, JsonValue],
        *,
        outcome: str = "",
        ledger: str = "",
        transcript: Sequence[str] = (),
    ) -> Reply:
        """Run a Lua function on a session; its reply is for `dispatch`, as `apply` passes it on."""

        def run(program: str) -> Reply:
            return self.run_with(
                program, verb, ref, arguments, outcome=outcome, ledger=ledger, transcript=transcript
            )

        return self.with_program(ref, run)

    def apply(
        self,
        verb: Verb,
        ref: SessionRef,
        arguments: Mapping[str, JsonValue],
        *,
        transcript: Sequence[str] = (),
    ) -> Reply:
        """Run a Lua function on a session, and send what its reply asks for."""
        answer = self.run(verb, ref, arguments, transcript=transcript)
        self.dispatch(ref, answer)
        return answer

    def run_with(
        self,
        program: str,
        verb: Verb,
        ref: SessionRef,
        arguments: Mapping[str, JsonValue],
        *,
        outcome: str = "",
        ledger: str = "",
        transcript: Sequence[str] = (),
    ) -> Reply:
        """Run a Lua function for a program. Raises ProgramStale if the session has another."""
        return self._store.run(
            verb, ref, program, arguments, outcome=outcome, ledger=ledger, transcript=transcript
        )

    def run_all(self, verb: Verb, ref: SessionRef, each: Sequence[Call]) -> list[Reply]:
        """Run a Lua function on a session with each set of arguments, in one round trip."""
        return self._store.run_all(verb, ref, self._registry.facts(ref).program, each)

    def with_program(self, ref: SessionRef, run: Callable[[str], Reply]) -> Reply:
        """Call `run` with a session's program hash; once more if the program has changed."""
        try:
            return run(self._registry.facts(ref).program)
        except ProgramStale:
            self._registry.forget_facts()
            return run(self._registry.facts(ref).program)

    def publish(
        self, ref: SessionRef, hints: Sequence[Hint], program: Program | None = None
    ) -> None:
        """Send the queue messages (hints) for a session's ready steps; the sweep repeats lost ones.

        `program` is that of the session, if the caller has it.
        """
        if hints:
            if program is None:
                program = self._registry.program(self._registry.facts(ref).program)
            self._carrier.publish(ref, program, hints)

    def publish_all(self, batch: Sequence[tuple[SessionRef, Program, Sequence[Hint]]]) -> None:
        """Send the queue messages (hints) of new sessions together; the sweep repeats lost ones."""
        with suppress(StoreAway):
            self._carrier.publish_all(batch)

    def rehint(self, ref: SessionRef, address: str, *, depth: int, called: bool = False) -> Reply:
        """Send a ready step's queue message again, unless one was sent lately to a long queue.

        The message was lost, or the step can run now.
        """
        arguments: dict[str, JsonValue] = {"address": address, "depth": depth, "called": called}
        return self.apply("notify", ref, arguments)

    def dispatch(self, ref: SessionRef, answer: Reply, program: Program | None = None) -> None:
        """Send the messages and notices that a reply asks for; the sweep repeats lost ones."""
        with suppress(StoreAway, ProgramNewer):
            self.publish(ref, answer.hints, program)
        self.after(ref, answer)

    def after(self, ref: SessionRef, answer: Reply) -> None:
        """Notify the parent, children and lock waiters that a reply names."""
        if answer.ended is not None:
            log.info("session ended", extra={"session": ref.id, "status": answer.ended})
        with suppress(StoreAway):
            for member in answer.called:
                session, root, address = member.split("|", 2)
                with suppress(SessionUnknown, ProgramNewer):
                    self.rehint(SessionRef(session, root), address, depth=0, called=True)
            for child in answer.abort:
                self.deliver(f"abort|{child}|{ref.root}|")
            for errand in answer.spawn:
                self.deliver(errand)
            if answer.tell:
                self.deliver(f"deliver|{ref.member}")


def _leave_to_sweep(errand: str) -> None:
    """Leave a message to the sweeper."""
