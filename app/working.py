"""What workers ask of the engine: a step, all that its body needs, and to record how it ended."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import JsonValue

from app.conversations import Said, said_until
from app.errors import SpecForeign, StoreAway
from app.inputs import resolved
from app.keys import SessionRef, lock_name
from app.ledger import entry_of
from app.outcomes import Busy, Outcome, Thread, Usage, writable, written
from app.program import SCHEMA_VERSION, Step, block_of, turn_of
from app.progress import standing_of
from app.reasons import Reason, ReasonCode
from app.records import Answer, Grant
from app.redaction import without_keys
from app.registry import Facts, Registry
from app.retry import quoted_error
from app.settings import Settings
from app.signing import fetched_order
from app.store import Given, Store
from app.transcript import question_of, records_of
from app.transitions import Transitions
from app.widths import expansion

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


class Working:
    """Carries out what workers ask. All methods raise StoreAway while Redis does not answer."""

    def __init__(
        self, store: Store, settings: Settings, registry: Registry, transitions: Transitions
    ) -> None:
        self._store = store
        self._settings = settings
        self._registry = registry
        self._transitions = transitions

    def claim(self, ref: SessionRef, address: str, *, nonce: str, worker: str) -> Answer:
        """Ask for a step: granted, refused (why) or superseded."""
        arguments: dict[str, JsonValue] = {
            "address": address,
            "nonce": nonce,
            "worker": worker,
            "lease_ms": self._settings.lease_ms,
            "schema": SCHEMA_VERSION,
            "place": self._settings.place,
        }
        answer = self._transitions.run("claim", ref, arguments)
        self._transitions.dispatch(ref, answer)
        if answer.why == "place":
            with suppress(StoreAway):
                self._transitions.rehint(ref, address, depth=0)  # on the queue of the right place
        return answer

    def work(self, ref: SessionRef, grant: Grant) -> Work:
        """All that the body of a granted step needs. Raises ReferenceUnresolved, SpecForeign."""
        facts = self._registry.facts(ref)
        program = self._registry.genuine(ref, facts)
        step = program.step(grant.address)
        fetched = fetched_order(step.inputs)
        if fetched is not None:
            raise SpecForeign(ref.id, f"{fetched} would come from an outcome, which nobody signs")
        inputs = resolved(self._store, ref, program, step, grant)
        beneath = str(inputs.get("working_folder") or "")
        cwd = Path(facts.cwd, beneath) if facts.cwd else None
        return Work(ref, grant, step, inputs, facts, cwd)

    def step(self, ref: SessionRef, address: str) -> Step:
        """What the session's program says of a step."""
        return self._registry.program(self._registry.facts(ref).program).step(address)

    def bare_work(self, ref: SessionRef, grant: Grant) -> Work:
        """The same without its inputs, for a step whose inputs cannot be read."""
        facts = self._registry.facts(ref)
        step = self._registry.program(facts.program).step(grant.address)
        return Work(ref, grant, step, {}, facts, Path(facts.cwd) if facts.cwd else None)

    def said(self, ref: SessionRef, turn: str) -> list[Said]:
        """What was said in a conversation of the session up to a turn, oldest first."""
        return said_until(turn, lambda at: self._store.values(ref, "out", [at]).get(at))

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
        arguments = self._holder(grant) | told(outcome) | {"take": []}
        answer = self._transitions.run("settle", ref, arguments, outcome=text)
        self._transitions.after(ref, answer)
        return answer

    def beat(self, ref: SessionRef, grant: Grant, *, spent: Usage | None = None) -> Answer:
        """Extend the lease: ok, stop, cancel or lost; what was used so far counts at once."""
        more: dict[str, JsonValue] = {"spent": None if spent is None else _counted(spent)}
        answer = self._transitions.run("beat", ref, self._holder(grant) | more)
        self._transitions.after(ref, answer)
        return answer

    def left(self, ref: SessionRef) -> Left:
        """What the session's folder was like when somebody worked there last."""
        found = self._store.values(ref, "session", ["digest", "compare"])
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
        answer = self._transitions.run(
            "settle",
            work.ref,
            given.arguments,
            outcome=given.outcome,
            ledger=given.ledger,
            said=given.said,
        )
        self._transitions.after(work.ref, answer)
        return answer

    def settle_all(self, each: Sequence[Settling], *, worker: str) -> list[Answer]:
        """Settle attempts of one session in one round trip, each as `settle` does.

        Where an error is raised any of them may be settled: settle each again by itself.
        """
        ref = each[0].work.ref
        given = [self._settling(one, worker) for one in each]
        answers = self._transitions.run_all("settle", ref, given)
        for answer in answers:
            self._transitions.after(ref, answer)
        return answers

    def _settling(self, one: Settling, worker: str) -> Given:
        work = one.work
        ref, grant = work.ref, work.grant
        program = self._registry.program(work.facts.program)
        kept, text = written(one.outcome)
        expand, outcome = expansion(program, grant.address, kept)
        arguments = self._holder(grant) | told(outcome)
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
            outcome=text if outcome is kept else outcome.model_dump_json(exclude_none=True),
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
        changed: bool = False,
    ) -> Answer:
        """Hand an attempt back, not counted; what it used is."""
        arguments = self._holder(grant) | {
            "why": why,
            "usage": _counted(usage) if usage is not None else None,
            "digest": digest,
            "changed": changed or None,
        }
        answer = self._transitions.run("release", ref, arguments)
        self._transitions.dispatch(ref, answer)
        return answer

    def move_lock(self, work: Work, folder: Path) -> Answer:
        """Let the session's lock be that of the folder's real path, as only its place can tell.

        The answer is released where the step is to wait for that lock, and kept where it goes on.
        """
        name = lock_name(f"folder:{work.facts.place}:{folder}")
        why = "its folder has another real path"
        arguments = self._holder(work.grant) | {"why": why, "folder": name}
        answer = self._transitions.run("release", work.ref, arguments)
        self._registry.forget_facts()
        self._transitions.dispatch(work.ref, answer)
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
            "until_ms": self._store.now_ms() + wait_ms,
            "question": question,
        }
        if child is not None:
            arguments |= {"child": child.id, "child_base": self._store.keys.base(child)}
        said = question_of(work.step, work.grant.address, question, attempt=work.grant.attempt)
        answer = self._transitions.run("park", work.ref, arguments, said=said)
        self._transitions.dispatch(work.ref, answer)
        return answer

    def _holder(self, grant: Grant) -> dict[str, JsonValue]:
        return {
            "address": grant.address,
            "fence": grant.fence,
            "nonce": grant.nonce,
            "lease_ms": self._settings.lease_ms,
        }


def told(outcome: Outcome) -> dict[str, JsonValue]:
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
