"""Runs transitions and does what their answers ask for: hints to workers, calls, errands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from pydantic import JsonValue

from app.errors import ProgramNewer, ProgramStale, SessionUnknown, StoreAway
from app.keys import SessionRef
from app.program import Program
from app.records import Answer, Hint
from app.registry import Registry
from app.store import Given, Store
from app.store_library import Verb

log = logging.getLogger(__name__)


class Carrier(Protocol):
    """Takes hints to workers; may lose them, the sweep sends them again."""

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:
        """Tell workers that these steps are ready."""

    def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        """How many messages stand in each queue."""

    def strays(
        self, gone: Callable[[str, Sequence[str]], set[str]], *, drop: bool
    ) -> Sequence[Standing]:
        """Every queue of the broker; messages to sessions that are gone are dropped if asked.

        `gone` tells of a queue and sessions with messages there which of them are.
        """


class Standing(NamedTuple):
    """A queue as the broker has it."""

    name: str
    depth: int
    #: Messages of it that are for sessions that are gone.
    strays: int


class Transitions:
    """The one way from here to the scripts."""

    def __init__(self, store: Store, carrier: Carrier, registry: Registry) -> None:
        self._store = store
        self._carrier = carrier
        self._registry = registry
        #: Does what one session owes another; whoever puts the engine together says how.
        self.errand: Callable[[str], None] = _nobody

    def run(
        self,
        verb: Verb,
        ref: SessionRef,
        arguments: Mapping[str, JsonValue],
        *,
        outcome: str = "",
        ledger: str = "",
        said: Sequence[str] = (),
    ) -> Answer:
        """Run a transition on a session; its answer is the caller's to dispatch."""

        def run(program: str) -> Answer:
            return self.run_of(
                program, verb, ref, arguments, outcome=outcome, ledger=ledger, said=said
            )

        return self.by_its_program(ref, run)

    def run_of(
        self,
        program: str,
        verb: Verb,
        ref: SessionRef,
        arguments: Mapping[str, JsonValue],
        *,
        outcome: str = "",
        ledger: str = "",
        said: Sequence[str] = (),
    ) -> Answer:
        """The same, should the session still have this program. Raises ProgramStale."""
        return self._store.run(
            verb, ref, program, arguments, outcome=outcome, ledger=ledger, said=said
        )

    def run_all(self, verb: Verb, ref: SessionRef, each: Sequence[Given]) -> list[Answer]:
        """Run a transition several times in one round trip, as Store.run_all does."""
        return self._store.run_all(verb, ref, self._registry.facts(ref).program, each)

    def by_its_program(self, ref: SessionRef, run: Callable[[str], Answer]) -> Answer:
        """Run what is worked out from a session's program, anew where it has another one now."""
        try:
            return run(self._registry.facts(ref).program)
        except ProgramStale:
            self._registry.forget_facts()
            return run(self._registry.facts(ref).program)

    def publish(self, ref: SessionRef, hints: Sequence[Hint]) -> None:
        """Tell workers of ready steps; what gets lost on the way, the sweep tells again."""
        if hints:
            program = self._registry.program(self._registry.facts(ref).program)
            self._carrier.publish(ref, program, hints)

    def rehint(self, ref: SessionRef, address: str, *, depth: int, called: bool = False) -> Answer:
        """A ready step's hint was lost, its time to wait is over, or its turn for a lock came."""
        arguments: dict[str, JsonValue] = {"address": address, "depth": depth, "called": called}
        answer = self.run("rehint", ref, arguments)
        self.dispatch(ref, answer)
        return answer

    def dispatch(self, ref: SessionRef, answer: Answer) -> None:
        """What was decided stands: hints and errands that cannot be seen to now are swept up."""
        with suppress(StoreAway, ProgramNewer):
            self.publish(ref, answer.hints)
        self.after(ref, answer)

    def after(self, ref: SessionRef, answer: Answer) -> None:
        """What one session owes another is done at once; the sweep does it where we cannot."""
        if answer.ended is not None:
            log.info("session ended", extra={"session": ref.id, "status": answer.ended})
        with suppress(StoreAway):
            for member in answer.called:
                session, root, address = member.split("|", 2)
                with suppress(SessionUnknown, ProgramNewer):
                    self.rehint(SessionRef(session, root), address, depth=0, called=True)
            for child in answer.abort:
                self.errand(f"abort|{child}|{ref.root}|")
            if answer.tell:
                self.errand(f"deliver|{ref.member}")


def _nobody(errand: str) -> None:
    """Leave it to the sweep."""
