"""Expires leases and the deadlines of parked steps; the sweeper calls it."""

from __future__ import annotations

from pydantic import JsonValue

from app.core import routing
from app.core.addresses import SessionRef, path_of
from app.core.program import Action, Program
from app.core.records import Carrier, Reply
from app.history.transcript import UNANSWERED, records_of
from app.plans.progress import catch_up
from app.sessions.context import SessionContext
from leadhand.errors import LeadhandError, StoreAway


class Expiry:
    """Runs the expire transition and its consequences."""

    def __init__(self, engine: SessionContext, carrier: Carrier) -> None:
        self._engine = engine
        self._carrier = carrier

    def expire(self, ref: SessionRef, address: str, *, gone: str | None = None) -> Reply:
        """End an attempt or wait that is over its time, or whose worker `gone` died.

        The step runs again, fails, gets the default answer, or is looked at again.
        """
        arguments: dict[str, JsonValue] = {"address": address, "jitter": 1}
        if gone is not None:
            arguments["gone"] = gone
        transcript = self._timeout_records(ref, address) if address else []
        answer = self._engine.transitions.apply("expire", ref, arguments, transcript=transcript)
        if answer.word == "default" and answer.fence is not None:
            self._engine.answers.give_default(ref, address, fence=answer.fence)
        elif answer.word == "look" and answer.child is not None and answer.fence is not None:
            self._engine.reports.look_at_child(ref, address, child=answer.child, fence=answer.fence)
        elif answer.word == "look":
            catch_up(self._engine, ref)
        return answer

    def depth(self, ref: SessionRef, address: str, known: dict[str, int]) -> int:
        """Return the number of messages in a step's queue; `known` caches it for one sweep."""
        facts = self._engine.registry.facts(ref)
        route = routing.queue_of(self._program_at(ref, address).step(address))
        queue = routing.full_queue(route, place=facts.place, session=ref.id)
        if queue not in known:
            known.update(self._carrier.depths([queue]))
        return known.get(queue, 0)

    def _timeout_records(self, ref: SessionRef, address: str) -> list[str]:
        """The transcript records of a question that timed out."""
        try:
            program = self._program_at(ref, address)
        except StoreAway:
            raise
        except LeadhandError:
            return []  # the session was deleted meanwhile
        if not program.has(path_of(address)):
            return []
        step = program.step(address)
        return records_of(step, address, UNANSWERED) if step.action is Action.HUMAN else []

    def _program_at(self, ref: SessionRef, address: str) -> Program:
        """The session's program; read again if the cached one has no such step."""
        program = self._engine.registry.program(self._engine.registry.facts(ref).program)
        if program.has(path_of(address)):
            return program
        self._engine.registry.forget_facts()
        return self._engine.registry.program(self._engine.registry.facts(ref).program)
