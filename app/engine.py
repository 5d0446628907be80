"""Load, decide, store, dispatch: the shell around the transitions that everybody calls."""

from __future__ import annotations

import hashlib
import json
import logging
import random
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from pydantic import JsonValue, TypeAdapter

from app import decide
from app.admission import admit
from app.capabilities import Caller
from app.errands import look_at_child, run_errand
from app.errors import (
    ControlRefused,
    IdempotencyConflict,
    InvalidDocument,
    QuotaPassed,
    SessionChanged,
    SessionStillRuns,
    SessionUnknown,
    SpecForeign,
    StoreAway,
)
from app.frontends import compile_document
from app.inputs import resolved
from app.keys import SessionRef, lock_name
from app.ledger import entry_of
from app.outcomes import Outcome
from app.program import SCHEMA_VERSION, Program, Step, block_of, turn_of, turns_around
from app.reading import Reader
from app.reasons import Reason, ReasonCode
from app.settings import Settings
from app.signing import Spec, fetched_order, is_ours, program_id, sign
from app.states import ENDED, SESSION_NEXT, SessionStatus
from app.store import Answer, Grant, Hint, NewSession, Store, Verb
from app.tokens import DAY_MS, Owner, Tokens
from app.views import Limit, SessionView, Submitted
from app.watching import Watch
from app.widths import expansion
from leadhand.documents import LoopDocument, WorkflowDocument

log = logging.getLogger(__name__)

Control = Literal["stop", "resume", "exit", "abort"]
AnyDocument = LoopDocument | WorkflowDocument

#: How much of a text goes into events, for those who watch.
TEASER = 200
#: How often a new session id is drawn before giving up; eight hex digits collide rarely.
DRAWS = 20

#: What a message's priority is; 0 goes first.
PRIORITIES = {"high": 0, "normal": 5, "low": 9}

#: Something of these may still run.
AT_WORK = (
    SessionStatus.ACTIVE,
    SessionStatus.STOPPING,
    SessionStatus.EXITING,
    SessionStatus.ABORTING,
)
#: How often a resume is tried anew whose session failed between the look and the call.
LOOKS = 3

#: A session can be bound to another place while it is one of these.
MOVABLE = (SessionStatus.ACTIVE, SessionStatus.STOPPED, SessionStatus.FAILED)

_TARGET = {
    "stop": SessionStatus.STOPPING,
    "resume": SessionStatus.ACTIVE,
    "exit": SessionStatus.EXITING,
    "abort": SessionStatus.ABORTING,
}


class Carrier(Protocol):
    """Takes hints to workers; may lose them, the sweep sends them again."""

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:
        """Tell workers that these steps are ready."""

    def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        """How many messages stand in each queue."""


class About(NamedTuple):
    """What a session is called, and where it works."""

    kind: str
    name: str
    label: str = ""
    cwd: str = ""
    place: str = ""
    #: The real path of `cwd` where it is known: two names of a folder are one lock.
    folder: str = ""
    priority: int = 5
    #: Who is told of what becomes of it (JSON), and of which events.
    webhook: str = ""
    rings: str = ""


class Seen(NamedTuple):
    """What a caller saw of a session: its status, and when it had changed last."""

    status: str
    updated_ms: int

    def as_stored(self) -> dict[str, JsonValue]:
        """The same as the session's own hash has it."""
        status = SessionStatus.ACTIVE.value if self.status == "waiting" else self.status
        return {"status": status, "updated": str(self.updated_ms)}


class Facts(NamedTuple):
    """What never changes about a session."""

    program: str
    kind: str
    place: str
    cwd: str | None
    #: The session whose step started this one.
    parent: str | None = None
    #: Of all that decides what runs; empty where nobody signed it.
    signature: str = ""


class Work(NamedTuple):
    """A step in a worker's hands: everything that its body needs."""

    ref: SessionRef
    grant: Grant
    step: Step
    inputs: dict[str, JsonValue]
    facts: Facts

    @property
    def cwd(self) -> Path | None:
        """The working folder, where the session has one."""
        return Path(self.facts.cwd) if self.facts.cwd else None


class Engine:
    """One per process. All methods raise StoreAway while Redis does not answer."""

    def __init__(self, store: Store, carrier: Carrier, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self._carrier = carrier
        self.reader = Reader(store, self.program)
        # What readers ask for, under the engine's own name.
        self.session = self.reader.session
        self.sessions = self.reader.sessions
        self.meant = self.reader.meant
        self.result = self.reader.result
        self.export = self.reader.export
        self.steps = self.reader.steps
        self.ledger = self.reader.ledger
        self.events = self.reader.events
        self.events_many = self.reader.events_many
        self.workers = self.reader.workers
        self.ping = store.ping
        self.watch = Watch(
            store,
            depths=carrier.depths,
            program=self.program,
            workers=self.workers,
        )
        self.tokens = Tokens(store.tokens(), secret=settings.secret)
        self._facts = lru_cache(maxsize=4096)(self._read_facts)
        self._programs = lru_cache(maxsize=256)(self._read_program)

    # What clients ask

    def submit(
        self,
        document: AnyDocument,
        *,
        idempotency_key: str | None = None,
        parent: Mapping[str, JsonValue] | None = None,
        root: str | None = None,
        owner: Owner | None = None,
    ) -> Submitted:
        """Create a session and tell workers of it; the same key again finds the same session.

        Raises InvalidDocument for what cannot run here, IdempotencyConflict for a key that was
        used with another body, QuotaPassed where its owner has no room for it.
        """
        where = admit(document, self.settings, self.workers())
        program = compile_document(document)
        about = About(
            kind=document.kind,
            name=program.name,
            label=document.label or "",
            cwd=document.cwd or "",
            place=where.place,
            folder=where.folder,
            priority=PRIORITIES[document.priority],
            webhook=document.webhook.model_dump_json() if document.webhook else "",
            rings=",".join(document.webhook.events) if document.webhook else "",
        )
        body = hashlib.sha256(document.model_dump_json().encode()).hexdigest()
        key = idempotency_key
        return self.start(
            program, about, body=body, key=key, parent=parent, root=root, owner=owner,
            size=len(document.model_dump_json().encode()),
        )  # fmt: skip

    def start(
        self,
        program: Program,
        about: About,
        *,
        body: str = "",
        key: str | None = None,
        parent: Mapping[str, JsonValue] | None = None,
        root: str | None = None,
        owner: Owner | None = None,
        size: int = 0,
    ) -> Submitted:
        """Create a session that runs a program; `body` is what the key must go with."""
        for _ in range(DRAWS):
            session = secrets.token_hex(4)
            ref = SessionRef(session, root or session)
            fields = self._fields(ref, program, about, parent)
            answer = self.store.create(
                NewSession(
                    ref=ref,
                    program=program.hash,
                    document=program.model_dump_json(),
                    routes=decide.routes(program),
                    fields=fields,
                    idempotency_key=_own_key(owner, key),
                    body_hash=body,
                    parent=parent,
                    owner=_owning(owner, size),
                )
            )
            match answer.word:
                case "taken":
                    continue
                case "created":
                    self._dispatch(ref, answer)
                    return Submitted(session=session, created=True)
                case "exists":
                    return Submitted(session=str(answer.session), created=False)
                case "conflict":
                    raise IdempotencyConflict(str(key))
                case "quota" if owner is not None:
                    raise _passed(owner, str(answer.why), answer.now)
                case _:
                    raise InvalidDocument("parent", str(parent), "its step runs no more")
        raise RuntimeError("no free session id was found")

    def control(
        self,
        session: str,
        verb: Control,
        *,
        reason: str = "",
        max_iterations: int | None = None,
        by: Caller | None = None,
        seen: Seen | None = None,
    ) -> SessionView:
        """Stop, resume, exit or abort. Raises SessionUnknown, SessionChanged, ControlRefused."""
        ref = self._ref(session)
        more: dict[str, JsonValue] = {"max_iterations": max_iterations}
        if seen is not None:
            more["seen"] = seen.as_stored()
        self._control(ref, verb, reason=reason, by=by, more=more)
        return self.session(session)

    def _control(
        self,
        ref: SessionRef,
        verb: Control,
        *,
        reason: str,
        more: Mapping[str, JsonValue],
        by: Caller | None = None,
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
        answer = self._run("control", ref, {**arguments, **self._anew(ref, verb)})
        looks = 1
        # It may have failed between the look and the call: look again at what runs anew.
        while answer.word == "refused" and answer.status == SessionStatus.FAILED and looks < LOOKS:
            answer = self._run("control", ref, {**arguments, **self._anew(ref, verb)})
            looks += 1
        _raise_refusal(ref.id, verb, answer)
        self._dispatch(ref, answer)

    def follow(
        self, child: SessionRef, verb: Control, above: SessionRef, meant: Sequence[SessionStatus]
    ) -> None:
        """Let a child do what its parent did, while the parent still is what it was then."""
        guard: dict[str, JsonValue] = {
            "base": self.store.keys.base(above),
            "status": [status.value for status in meant],
        }
        self._control(child, verb, reason="its parent session did", more={"above": guard})

    def poke(self, ref: SessionRef) -> None:
        """Let a session that waits for its children's end or stop see whether that is over."""
        arguments: dict[str, JsonValue] = {"verb": "poke", "from": [s.value for s in AT_WORK]}
        self._dispatch(ref, self._run("control", ref, arguments))

    def rehome(self, session: str, place: str) -> SessionView:
        """Bind a session to another place, with all that waits. Raises SessionUnknown."""
        ref = self._ref(session)
        fields = self.store.fields(ref)
        folder = fields.get("folder", "").partition(":")[2].partition(":")[2]
        arguments: dict[str, JsonValue] = {
            "verb": "rehome",
            "from": [status.value for status in MOVABLE],
            "place": place,
            "folder": f"folder:{place}:{folder}" if folder else "",
            "signature": self._signed_anew(ref, fields, place),
        }
        answer = self._run("control", ref, arguments)
        if answer.word == "refused":
            hint = "only what still has steps to run can move"
            raise ControlRefused(session, "rehome", str(answer.status), hint)
        self._facts.cache_clear()
        self._dispatch(ref, answer)
        return self.session(session)

    def limit(
        self, key: str, *, concurrency: int | None = None, per_minute: float | None = None
    ) -> Limit:
        """Let at most so many attempts with this key run, or so many begin in a minute."""
        limit = Limit(key=key, concurrency=concurrency, per_minute=per_minute)
        self.store.limit(lock_name(key), limit.model_dump_json(exclude={"key"}, exclude_none=True))
        return limit

    def unlimit(self, key: str) -> bool:
        """Take a limit away; whether there was one. Who waits for it is let go by the sweep."""
        return self.store.limit(lock_name(key), None)

    def limits(self) -> list[Limit]:
        """All limits, by key."""
        found = sorted(self.store.limits().items())
        return [Limit(key=key, **json.loads(text)) for key, text in found]

    def stands(self, caller: Caller) -> bool:
        """Whether the attempt that a body's token speaks for still has its step."""
        ref = self.store.ref(caller.session)
        step = self.store.steps(ref, [caller.address]).get(caller.address) if ref else None
        return step is not None and step.state == "running" and step.fence == caller.fence

    def delete(
        self, session: str, *, force: bool = False, seen: Seen | None = None
    ) -> SessionView | None:
        """Forget an ended session; by force, one that runs is aborted and forgotten at its end.

        The view of one that is still to end, None where it is forgotten already.
        Raises SessionUnknown, SessionChanged, SessionStillRuns.
        """
        ref = self._ref(session)
        arguments: dict[str, JsonValue] = {
            "program": self._facts(ref).program,
            "seen": seen.as_stored() if seen else None,
            "force": [status.value for status in sorted(ENDED)] if force else None,
        }
        answer = self._run("delete", ref, arguments)
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
        self.store.errand_done(f"delete|{ref.member}")
        if view.status not in ENDED:
            return view
        self.run_errand(f"forget|{ref.member}")
        return None

    def _aborted(self, session: str) -> SessionView:
        try:
            return self.control(session, "abort", reason="it is deleted by force")
        except ControlRefused:
            return self.session(session)  # it is being aborted already, or has ended meanwhile

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
        answer = self._run("claim", ref, arguments)
        self._dispatch(ref, answer)
        if answer.why == "place":
            with suppress(StoreAway):
                self.rehint(ref, address, depth=0)  # on the queue of the right place
        return answer

    def work(self, ref: SessionRef, grant: Grant) -> Work:
        """All that the body of a granted step needs. Raises ReferenceUnresolved, SpecForeign."""
        facts = self._facts(ref)
        program = self._genuine(ref, facts)
        step = program.step(grant.address)
        fetched = fetched_order(step.inputs)
        if fetched is not None:
            raise SpecForeign(ref.id, f"{fetched} would come from an outcome, which nobody signs")
        inputs = resolved(self.store, ref, program, step, grant.address)
        return Work(ref, grant, step, inputs, facts)

    def bare_work(self, ref: SessionRef, grant: Grant) -> Work:
        """The same without its inputs, for a step whose inputs cannot be read."""
        facts = self._facts(ref)
        step = self.program(facts.program).step(grant.address)
        return Work(ref, grant, step, {}, facts)

    def refuse(self, ref: SessionRef, grant: Grant, *, why: str) -> Answer:
        """Fail a granted step whose program cannot be trusted, without a look at the program."""
        reason = Reason(code=ReasonCode.FAILED_STEP, text=why, at=grant.address)
        outcome = Outcome(word="failed", text=why, reason=reason, retryable=False)
        text = outcome.model_dump_json(exclude_none=True)
        arguments = self._holder(grant) | _said(outcome) | {"take": []}
        answer = self._run("settle", ref, arguments, outcome=text)
        self._after(ref, answer)
        return answer

    def beat(self, ref: SessionRef, grant: Grant) -> Answer:
        """Extend the lease: ok, stop, cancel or lost."""
        return self._run("beat", ref, self._holder(grant))

    def settle(self, work: Work, outcome: Outcome, *, take: Sequence[str], worker: str) -> Answer:
        """Record what came of an attempt, once; quick steps that follow are granted to `take`.

        The answer is settled, again (it is tried anew), repeated or superseded; its hints are the
        caller's to dispatch.
        """
        ref, grant = work.ref, work.grant
        program = self.program(work.facts.program)
        expand, outcome = expansion(program, grant.address, outcome)
        arguments = self._holder(grant) | _said(outcome)
        arguments |= {
            "worker": worker,
            "take": list(take),
            "expand": expand or None,
            "jitter": 0.5 + random.random() / 2,  # noqa: S311  # spreads retries, guards nothing
        }
        entry = entry_of(work.step, grant.address, ref.id, work.inputs, outcome)
        if entry is not None:
            arguments["ledger"] = turn_of(block_of(grant.address))
        answer = self._run(
            "settle",
            ref,
            arguments,
            outcome=outcome.model_dump_json(exclude_none=True),
            ledger=entry or "",
        )
        self._after(ref, answer)
        return answer

    def release(self, ref: SessionRef, grant: Grant, *, why: str) -> Answer:
        """Hand an attempt back, not counted."""
        answer = self._run("release", ref, {**self._holder(grant), "why": why})
        self._dispatch(ref, answer)
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
        arguments = self._holder(work.grant) | {
            "on": on,
            "until_ms": self.store.now_ms() + wait_ms,
            "question": question,
        }
        if child is not None:
            arguments |= {"child": child.id, "child_base": self.store.keys.base(child)}
        answer = self._run("park", work.ref, arguments)
        self._dispatch(work.ref, answer)
        return answer

    def answer(
        self, ref: SessionRef, address: str, outcome: Outcome, *, fence: int, by: str
    ) -> Answer:
        """Give a parked step what it waits for: settled, or superseded (who was first)."""
        program = self.program(self._facts(ref).program)
        expand, outcome = expansion(program, address, outcome)
        arguments: dict[str, JsonValue] = {
            "address": address,
            "fence": fence,
            "by": by,
            "expand": expand or None,
            **_said(outcome),
        }
        text = outcome.model_dump_json(exclude_none=True)
        answer = self._run("answer", ref, arguments, outcome=text)
        self._dispatch(ref, answer)
        return answer

    def publish(self, ref: SessionRef, hints: Sequence[Hint]) -> None:
        """Tell workers of ready steps; what gets lost on the way, the sweep tells again."""
        if hints:
            self._carrier.publish(ref, self.program(self._facts(ref).program), hints)

    # What the sweeper asks

    def expire(self, ref: SessionRef, address: str) -> Answer:
        """A lease or a parked step's time is over."""
        arguments: dict[str, JsonValue] = {"address": address, "jitter": 1}
        answer = self._run("expire", ref, arguments)
        self._dispatch(ref, answer)
        if answer.word == "look" and answer.child is not None and answer.fence is not None:
            look_at_child(self, ref, address, child=answer.child, fence=answer.fence)
        return answer

    def rehint(self, ref: SessionRef, address: str, *, depth: int) -> Answer:
        """A ready step's hint was lost, or its time to wait is over."""
        answer = self._run("rehint", ref, {"address": address, "depth": depth})
        self._dispatch(ref, answer)
        return answer

    def depth(self, ref: SessionRef, address: str, known: dict[str, int]) -> int:
        """How many messages stand in the step's queue; `known` remembers within one sweep."""
        facts = self._facts(ref)
        route = decide.queue_of(self.program(facts.program).step(address))
        queue = f"{route}@{facts.place}" if facts.place else route
        if queue not in known:
            known.update(self._carrier.depths([queue]))
        return known.get(queue, 0)

    def run_errand(self, errand: str) -> None:
        """Do what one session owes another; safe to repeat, done once it cannot matter."""
        run_errand(self, errand)

    def program(self, program: str) -> Program:
        """The program of this hash, from memory where it was seen before."""
        return self._programs(program).program

    def signature(self, ref: SessionRef, program: str, *, cwd: str, place: str) -> str:
        """What a session is signed with that runs this program there."""
        return sign(Spec(ref.id, ref.root, program, cwd, place), secret=self.settings.secret)

    # How it is done

    def _fields(
        self,
        ref: SessionRef,
        program: Program,
        about: About,
        parent: Mapping[str, JsonValue] | None,
    ) -> dict[str, str]:
        return {
            "id": ref.id,
            "root": ref.root,
            "nonce": secrets.token_hex(8),
            **{name: str(value) for name, value in about._asdict().items()},
            "folder": lock_name(f"folder:{about.place}:{about.folder}") if about.folder else "",
            "lenders": json.dumps(self._lenders(ref, parent)) if parent else "",
            "program": program.hash,
            "signature": self.signature(ref, program.hash, cwd=about.cwd, place=about.place),
            "schema": str(program.schema_version),
            "window": str(self.settings.window),
            **self.settings.retentions,
            "parent": json.dumps(dict(parent)) if parent else "",
        }

    def _lenders(self, ref: SessionRef, parent: Mapping[str, JsonValue]) -> list[str]:
        """The turns above a child session: what they hold is lent to it."""
        above = SessionRef(str(parent["session"]), ref.root)
        given = json.loads(self.store.fields(above).get("lenders") or "[]")
        turns = [above.member + turn for turn in turns_around(str(parent["address"]))]
        return [*turns, *given]

    def _run(
        self,
        verb: Verb,
        ref: SessionRef,
        arguments: Mapping[str, JsonValue],
        *,
        outcome: str = "",
        ledger: str = "",
    ) -> Answer:
        program = self._facts(ref).program
        return self.store.run(verb, ref, program, arguments, outcome=outcome, ledger=ledger)

    def _holder(self, grant: Grant) -> dict[str, JsonValue]:
        return {
            "address": grant.address,
            "fence": grant.fence,
            "nonce": grant.nonce,
            "lease_ms": self.settings.lease_ms,
        }

    def _dispatch(self, ref: SessionRef, answer: Answer) -> None:
        """What was decided stands: hints and errands that cannot be seen to now are swept up."""
        with suppress(StoreAway):
            self.publish(ref, answer.hints)
        self._after(ref, answer)

    def _after(self, ref: SessionRef, answer: Answer) -> None:
        """What one session owes another is done at once; the sweep does it where we cannot."""
        if answer.ended is not None:
            log.info("session ended", extra={"session": ref.id, "status": answer.ended})
        with suppress(StoreAway):
            for member in answer.called:
                session, root, address = member.split("|", 2)
                with suppress(SessionUnknown):
                    self.rehint(SessionRef(session, root), address, depth=0)
            for child in answer.abort:
                self.run_errand(f"abort|{child}|{ref.root}|")
            if answer.tell:
                self.run_errand(f"deliver|{ref.member}")

    def _anew(self, ref: SessionRef, verb: Control) -> dict[str, JsonValue]:
        """Which nodes a failed session runs anew when it is resumed."""
        fields = self.store.fields(ref) if verb == "resume" else {}
        if fields.get("status") != SessionStatus.FAILED:
            return {}
        program = self.program(fields["program"])
        finished, failed = self.reader.standing(ref, program)
        anew = decide.dependents(program, failed)
        again: list[JsonValue] = [dict(n) for n in decide.run_anew(program, anew, finished)]
        return {"again": again, "ended": fields["ended"]}

    def _ref(self, session: str) -> SessionRef:
        ref = self.store.ref(session)
        if ref is None:
            raise SessionUnknown(session)
        return ref

    def _genuine(self, ref: SessionRef, facts: Facts) -> Program:
        """The session's program. Raises SpecForeign unless all of it was signed here."""
        spec = Spec(ref.id, ref.root, facts.program, facts.cwd or "", facts.place)
        if not facts.signature:
            raise SpecForeign(ref.id, "it was not signed")
        if not is_ours(spec, facts.signature, secret=self.settings.secret):
            raise SpecForeign(ref.id, "its signature is not of this worker's LEADHAND_SECRET")
        found = self._programs(facts.program)
        if not found.genuine:
            raise SpecForeign(ref.id, f"program {facts.program} was changed after it was signed")
        return found.program

    def _signed_anew(self, ref: SessionRef, fields: Mapping[str, str], place: str) -> str:
        """The signature for another place; what we did not sign before stays unsigned."""
        facts = self._facts_of(ref, fields)
        try:
            self._genuine(ref, facts)
        except SpecForeign:
            return ""
        return self.signature(ref, facts.program, cwd=facts.cwd or "", place=place)

    def _read_facts(self, ref: SessionRef) -> Facts:
        return self._facts_of(ref, self.store.fields(ref))

    @staticmethod
    def _facts_of(ref: SessionRef, fields: Mapping[str, str]) -> Facts:
        if "program" not in fields:
            raise SessionUnknown(ref.id)
        cwd = fields.get("cwd") or None
        parent = json.loads(fields["parent"])["session"] if fields.get("parent") else None
        return Facts(
            fields["program"],
            fields["kind"],
            fields["place"],
            cwd,
            parent,
            fields.get("signature", ""),
        )

    def _read_program(self, program: str) -> _Found:
        text = self.store.program(program)
        if text is None:
            raise SessionUnknown(f"of program {program}")
        return _Found(_PROGRAM.validate_json(text), genuine=program_id(text) == program)


class _Found(NamedTuple):
    """A program as it lies in Redis: anybody may look at it, only a genuine one is run."""

    program: Program
    #: Whether its document is the one that its name, which is signed, stands for.
    genuine: bool


_PROGRAM = TypeAdapter(Program)


def _own_key(owner: Owner | None, key: str | None) -> str | None:
    """An Idempotency-Key as it is kept: what one token's holder uses is not another's."""
    return f"{owner.token}/{key}" if owner is not None and key is not None else key


def _owning(owner: Owner | None, size: int) -> dict[str, JsonValue] | None:
    """What the script is told of whose a session is."""
    if owner is None:
        return None
    quotas = owner.quotas
    return {
        "token": owner.token,
        "sessions": quotas.max_sessions,
        "steps": quotas.steps_per_day,
        "bytes": quotas.bytes_per_day,
        "size": size,
    }


def _passed(owner: Owner, what: str, now_ms: int) -> QuotaPassed:
    quotas = owner.quotas
    if what == "sessions":
        return QuotaPassed(what, quotas.max_sessions or 0)
    limit = quotas.steps_per_day if what == "steps" else quotas.bytes_per_day
    return QuotaPassed(what, limit or 0, retry_after_s=-(-(DAY_MS - now_ms % DAY_MS) // 1000))


def _said(outcome: Outcome) -> dict[str, JsonValue]:
    """What the script is told of an outcome."""
    reason = outcome.reason.model_dump(mode="json", exclude_none=True) if outcome.reason else None
    return {
        "word": outcome.word,
        "verdict": outcome.verdict,
        "reason": reason,
        "retryable": outcome.retryable,
        "text": outcome.text[:TEASER],
    }


def _raise_refusal(session: str, verb: Control, answer: Answer) -> None:
    match answer.word:
        case "unknown":
            raise SessionUnknown(session)
        case "changed":
            raise SessionChanged(session, str(answer.status))
        case "refused":
            status = str(answer.status)
            raise ControlRefused(session, verb, status, _way_out(verb, status))
        case _:
            return


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
    if verb == "resume":
        return "only a stopped or failed session can be resumed"
    if status == "superseded":
        return "the step that asks runs no more"
    return "it has ended" if status in ("completed", "exited", "aborted") else "wait for its end"
