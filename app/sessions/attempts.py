"""The transitions of attempts: claim, beat, settle, release and park, as workers call them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import JsonValue

from app.compiler.folders import opening_inputs
from app.core.addresses import SessionRef, block_of, lock_name, path_of, turn_of
from app.core.artifacts import VALUE, ArtifactSource, marker
from app.core.environment import Definitions, SessionEnvironment
from app.core.folders import BESIDE
from app.core.outcomes import (
    Busy,
    Outcome,
    Thread,
    Usage,
    ending_of,
    quote_error,
    serialize,
    without_surrogates,
)
from app.core.program import SCHEMA_VERSION, Action, Program, Step, apply_policy
from app.core.records import Grant, Reply
from app.core.routing import expansion
from app.errors import SpecForeign
from app.history.conversations import Message, messages_until
from app.history.ledger import entry_of, signature_of
from app.history.records import home_of
from app.history.transcript import messages_of, question_of, records_of
from app.plans.tasks import parse_plan, statuses_of
from app.programs import Facts, Registry
from app.redaction import without_keys
from app.security.signatures import command_from_outcome
from app.sessions.inputs import resolve_inputs
from app.settings import Settings
from app.store.script_runner import Call
from app.store.store import Store
from app.transitions import Transitions
from app.truncate import last_lines
from leadhand.errors import SessionUnknown, StoreAway
from leadhand.models.verdicts import Reason, ReasonCode

#: Maximum characters of a text in events.
TEASER = 200


class Work(NamedTuple):
    """A claimed step with everything that its body needs."""

    ref: SessionRef
    grant: Grant
    step: Step
    inputs: dict[str, JsonValue]
    facts: Facts
    #: The step's working folder: the session's, or one beneath it.
    cwd: Path | None
    #: The folder that the first step of the session, or of its `owner`, makes: as the signed
    #: program says.
    workspace: Mapping[str, JsonValue] | None = None
    #: What the session's submitter passed to its bodies.
    environment: SessionEnvironment = SessionEnvironment()
    #: The definitions of its folder.
    definitions: Definitions | None = None
    #: Whether it may bring commands: its token had the scope exec:free.
    is_free: bool = False
    #: Of a child session that works in a folder which another session has to itself: that session.
    owner: SessionRef | None = None
    #: Whether other sessions may write to the folder at the same time: steps beside this session's.
    is_beside: bool = False

    @property
    def home(self) -> SessionRef:
        """Return the session that has the snapshots of the folder."""
        return self.owner or self.ref

    @property
    def locks_another(self) -> Path | None:
        """Return the folder's real path if the session's lock is on another path, else None.

        A session that applies work has the lock of the user's folder, and checks in a worktree.
        """
        if self.facts.cwd is None or not self.step.folder or not self.facts.folder:
            return None
        made = self.workspace or {}
        real = Path(str(made["origin"]) if made.get("do") == "merge" else self.facts.cwd).resolve()
        held = lock_name(f"folder:{self.facts.place}:{real}")
        return real if held != self.facts.folder else None


class Settling(NamedTuple):
    """Arguments of a settle: the attempt and its outcome."""

    work: Work
    outcome: Outcome
    take: Sequence[str]
    patch: str | None = None
    changed: bool = False
    #: The state of the folder that is judged and committed: its snapshot's time and digest.
    worked: str | None = None


class _Around(NamedTuple):
    """The folder of a session, which a child shares with the sessions that wait for its end."""

    opening: Mapping[str, JsonValue] | None
    owner: SessionRef | None = None
    is_beside: bool = False


class FolderState(NamedTuple):
    """The recorded states of a working folder."""

    #: After the last attempt.
    digest: str | None
    #: Whether the session was stopped since, so that the folder may have changed.
    compare: bool
    #: After the last doer: the work that is judged and committed.
    work: str | None = None
    #: When the run of the step's loop began.
    base: str | None = None


class Attempts:
    """Runs the transitions of attempts. All methods raise StoreAway if Redis is unreachable."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        registry: Registry,
        transitions: Transitions,
        artifacts: ArtifactSource,
    ) -> None:
        self._store = store
        #: Opens the artifacts that the references of an attempt may name.
        self.open_artifacts: Callable[[SessionRef, Grant], ArtifactSource] = lambda *_: artifacts
        self._settings = settings
        self._registry = registry
        self._transitions = transitions
        #: By the program's hash and the step's path: the same for every attempt.
        self._unsigned_commands = lru_cache(maxsize=4096)(self._find_unsigned_command)

    def claim(
        self, ref: SessionRef, address: str, *, nonce: str, worker: str, is_local: bool = False
    ) -> Reply:
        """Claim a step for a worker; replies `granted`, `refused` (with a reason) or `superseded`.

        A local step is claimed by its session's submitter, all others by workers.
        """
        arguments: dict[str, JsonValue] = {
            "address": address,
            "nonce": nonce,
            "worker": worker,
            "lease_ms": self._settings.lease_ms,
            "schema": SCHEMA_VERSION,
            "place": None if is_local else self._settings.place,
            "is_local": is_local or None,
        }
        answer = self._transitions.apply("claim", ref, arguments)
        if answer.why == "place":
            with suppress(StoreAway):
                self._transitions.rehint(ref, address, depth=0)  # on the queue of the right place
        return answer

    def work(self, ref: SessionRef, grant: Grant) -> Work:
        """Load a claimed step's definition, resolved inputs, folder and environment from the store.

        Raises SpecForeign if the program's signature is invalid, ReferenceUnresolved for inputs.
        """
        facts = self._facts(ref, grant)
        program = self._registry.verified_program(ref, facts)
        step = program.step(grant.address)
        unsigned = self._unsigned_commands(facts.program, path_of(grant.address))
        if unsigned is not None:
            raise SpecForeign(ref.id, f"{unsigned} would come from an outcome, which is not signed")
        inputs = resolve_inputs(
            self._store, ref, program, step, grant, self.open_artifacts(ref, grant)
        )
        if step.action is Action.DRAFT:
            inputs["current"] = self._planned(ref, facts, is_failed="failed" in inputs)
        beneath = str(inputs.get("working_folder") or "")
        cwd = _folder(facts.cwd, beneath) if facts.cwd else None
        environment = self._registry.environment(ref, facts.environment)
        definitions = self._registry.definitions(ref, facts.definitions)
        around = self._around(ref, facts, program)
        is_free = self._registry.is_free(ref, {"free": facts.free})
        return Work(
            ref, grant, step, inputs, facts, cwd, around.opening, environment, definitions, is_free,
            around.owner, around.is_beside,
        )  # fmt: skip

    def _around(self, ref: SessionRef, facts: Facts, program: Program) -> _Around:
        """Whose folder it is: a step that starts a child session in its folder waits for its end.

        A session that a body starts has its folder as a user's: the body may write meanwhile.
        """
        opening, cwd, is_beside = opening_inputs(program), facts.cwd, False
        while opening is None and cwd is not None and facts.parent is not None:
            above, at = SessionRef(facts.parent, ref.root), facts.parent_step
            try:
                facts = self._registry.facts(above)
            except SessionUnknown:  # it was deleted
                break
            program = self._registry.program(facts.program)
            step = program.step_or_none(at)
            if step is None or step.action is not Action.CHILD or facts.cwd != cwd:
                break
            is_beside = is_beside or BESIDE in step.inputs
            opening = opening_inputs(program)
            if opening is not None:
                return _Around(opening, above, is_beside)
        return _Around(opening, None, is_beside)

    def _facts(self, ref: SessionRef, grant: Grant) -> Facts:
        """The facts of the session; read again if a resume has changed its definitions."""
        facts = self._registry.facts(ref)
        if facts.definitions != grant.definitions:
            self._registry.forget_facts()
            facts = self._registry.facts(ref)
        return facts

    def _find_unsigned_command(self, program: str, path: str) -> str | None:
        return command_from_outcome(self._registry.program(program).step(path).inputs)

    def _planned(self, ref: SessionRef, facts: Facts, *, is_failed: bool) -> JsonValue:
        """The tasks of the plan as people have edited them; None before the first draft.

        A team lead that is asked about a failed task works for the plan of its parent, and also
        gets the statuses.
        """
        if is_failed and facts.parent is not None:
            ref = SessionRef(facts.parent, ref.root)
        plan = parse_plan(self._store.plan(ref))
        if plan is None:
            return None
        statuses = statuses_of(plan.tasks) if is_failed else {}
        return [
            one.task.model_dump(mode="json", exclude_defaults=True)
            | ({"status": statuses[one.id]} if is_failed else {})
            for one in plan.tasks
        ]

    def step(self, ref: SessionRef, address: str) -> Step:
        """Return the definition of the step at an address, from the session's program."""
        return self._registry.program(self._registry.facts(ref).program).step(address)

    def bare_work(self, ref: SessionRef, grant: Grant) -> Work:
        """Load a claimed step with empty inputs, for a step whose inputs cannot be resolved."""
        facts = self._registry.facts(ref)
        step = self._registry.program(facts.program).step(grant.address)
        return Work(ref, grant, step, {}, facts, Path(facts.cwd) if facts.cwd else None)

    def messages(self, ref: SessionRef, turn: str) -> list[Message]:
        """Return the messages of an agent's conversation up to the step at `turn`, oldest first."""
        return messages_until(turn, lambda at: self._store.values(ref, "out", [at]).get(at))

    def passed_on(self, ref: SessionRef, grant: Grant) -> Outcome:
        """Return the outcome of the doer of a recheck: the work of the iteration before it."""
        block, name = block_of(grant.address), path_of(grant.address).rpartition("/")[2]
        home = home_of(f"{turn_of(block)}[{grant.recheck - 1}]", name, grant.origins)
        at = f"{home}/{name}"
        found = self._store.values(ref, "out", [at]).get(at)
        before = Outcome.model_validate_json(found) if found else Outcome(word="succeeded")
        kept = {"word", "text", "value", "artifacts", "tools_failed"}
        return Outcome(**before.model_dump(include=kept), passed_on=at)

    def refuse(
        self, ref: SessionRef, grant: Grant, *, why: str, usage: Usage | None = None
    ) -> Reply:
        """Settle a claimed step as failed for good, with reason `why`, without reading its program.

        For programs with an invalid signature, and for internal errors.
        """
        reason = Reason(code=ReasonCode.FAILED_STEP, text=why, at=grant.address)
        outcome = without_surrogates(
            Outcome(word="failed", text=why, reason=reason, retryable=False, usage=usage)
        )
        text = outcome.model_dump_json(exclude_none=True)
        arguments = self._holder(grant) | outcome_fields(outcome) | {"take": []}
        answer = self._transitions.run("settle", ref, arguments, outcome=text)
        self._transitions.after(ref, answer)
        return answer

    def beat(
        self,
        ref: SessionRef,
        grant: Grant,
        *,
        spent: Usage | None = None,
        compared: bool = False,
        changed: bool = False,
    ) -> Reply:
        """Extend an attempt's lease, record usage; replies `ok`, `stop`, `cancel` or `lost`.

        `compared` says that the folder is as a person has approved it: the work begins. `changed`
        says that it is not, and asks whether it is still bound: no step has begun beside this one.
        """
        more: dict[str, JsonValue] = {
            "spent": None if spent is None else _usage_argument(spent),
            "compared": compared or None,
            "changed": changed or None,
        }
        answer = self._transitions.run("beat", ref, self._holder(grant) | more)
        self._transitions.after(ref, answer)
        return answer

    def folder_state(
        self, ref: SessionRef, address: str = "", *, owner: SessionRef | None = None
    ) -> FolderState:
        """Read the recorded states of a session's folder, as of the step at an address.

        `owner` is the session that has it to itself, if that is another one.
        """
        base = f"base|{loop_run_of(address)}"
        found = self._store.values(ref, "session", ["digest", "compare", "work", base])
        if owner is not None:
            found.pop("work", None)
            found |= self._store.values(owner, "session", ["digest", "work"])
        work = found.get("work", "").partition(" ")[2] or None
        return FolderState(found.get("digest"), found.get("compare") == "1", work, found.get(base))

    def record_base(self, ref: SessionRef, address: str, digest: str) -> None:
        """Record the state of the folder before the first doer of a run of a loop, once."""
        arguments: dict[str, JsonValue] = {"base": digest, "loop": loop_run_of(address)}
        self._transitions.run("own_folder", ref, arguments)

    def taken_files(
        self, ref: SessionRef, at: str
    ) -> tuple[str, Literal["compare", "accept"] | None]:
        """Read the protected files that were taken for a step, and how a resume takes others."""
        found = self._store.values(ref, "session", [f"taken|{at}", "resumed"])
        resumed = found.get("resumed")
        how: Literal["compare", "accept"] = "accept" if resumed == "accept" else "compare"
        return found.get(f"taken|{at}", ""), None if resumed is None else how

    def take_files(self, ref: SessionRef, at: str, packed: str) -> None:
        """Store the protected files that were taken for the step at an address."""
        self._transitions.run("own_folder", ref, {"taken": packed, "at": at})

    def settle(
        self,
        work: Work,
        outcome: Outcome,
        *,
        take: Sequence[str],
        worker: str,
        patch: str | None = None,
        changed: bool = False,
        worked: str | None = None,
    ) -> Reply:
        """Record an attempt's outcome in the store, once; the reply may grant next steps.

        `patch` is the diff of its folder, `changed` whether the folder had changed before it,
        `worked` the state of the folder that is to be judged. The reply is `settled`, `again` (it
        will be retried), `repeated` or `superseded`. The caller dispatches its hints.
        """
        given = self._settling(Settling(work, outcome, take, patch, changed, worked), worker)
        answer = self._transitions.run(
            "settle",
            work.ref,
            given.arguments,
            outcome=given.outcome,
            ledger=given.ledger,
            transcript=given.transcript,
        )
        self._transitions.after(work.ref, answer)
        return answer

    def settle_all(self, each: Sequence[Settling], *, worker: str) -> list[Reply]:
        """Record outcomes of several attempts of one session in one round trip, as `settle` does.

        After an error some of them may be settled: settle each one again by itself.
        """
        ref = each[0].work.ref
        given = [self._settling(one, worker) for one in each]
        answers = self._transitions.run_all("settle", ref, given)
        for answer in answers:
            self._transitions.after(ref, answer)
        return answers

    def _settling(self, one: Settling, worker: str) -> Call:
        work = one.work
        ref, grant = work.ref, work.grant
        program = self._registry.program(work.facts.program)
        policy = work.step.retry
        stored, text = serialize(apply_policy(policy, one.outcome))
        expand, outcome = expansion(program, grant.address, stored)
        outcome = without_stored_value(outcome)
        # An answer is stored as it was given; events show no credential in it.
        shown = outcome if grant.given is None else without_credentials(outcome)
        arguments = self._holder(grant) | outcome_fields(shown)
        arguments |= {
            "worker": worker,
            "take": list(one.take),
            "expand": expand or None,
            "patch": one.patch,
            "changed": one.changed or None,
            "work": one.worked,
            "owner": work.owner and self._base_of(work.owner),
            "jitter": 1 - policy.jitter * random.random(),  # noqa: S311  # spreads retries only
        }
        if work.step.action is Action.AGENT and work.step.origin is None:
            arguments["ending"] = ending_of(outcome)
        entry = entry_of(work.step, grant, ref.id, work.inputs, outcome)
        if entry is not None:
            arguments["ledger"] = turn_of(block_of(grant.address))
            signature = signature_of(work.inputs, outcome)
            arguments |= signature._asdict() if signature is not None else {}
        return Call(
            arguments,
            outcome=text if outcome is stored else outcome.model_dump_json(exclude_none=True),
            ledger=entry or "",
            transcript=[
                *messages_of(work.step, grant.address, grant.messages, attempt=grant.attempt),
                # A person's answer has its record since it was given.
                *(
                    []
                    if grant.given is not None and outcome.word == "succeeded"
                    else records_of(work.step, grant.address, outcome, attempt=grant.attempt)
                ),
            ],
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
        worked: str | None = None,
        owner: SessionRef | None = None,
    ) -> Reply:
        """Give an attempt up: its step becomes ready again, and only its usage is counted."""
        arguments = self._holder(grant) | {
            "why": why,
            "usage": _usage_argument(usage) if usage is not None else None,
            "digest": digest,
            "changed": changed or None,
            "work": worked,
            "owner": owner and self._base_of(owner),
        }
        return self._transitions.apply("release", ref, arguments)

    def move_lock(self, work: Work, folder: Path) -> Reply:
        """Move the lock to the real path, hand the step back (`released`); `kept`: nothing moved.

        Only the place of the session can resolve the path. The reply is `released` if the step must
        wait for that lock, and `kept` if it continues.
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
        on: Literal["human", "wait", "stop", "child", "plan"],
        wait_ms: int,
        child: SessionRef | None = None,
        question: JsonValue = None,
        plan: JsonValue = None,
        default: JsonValue = None,
        rules: JsonValue = None,
        seen: str | None = None,
        asked: int | None = None,
    ) -> Reply:
        """Park a step, to wait without a worker; replies `parked`, `ended` or `superseded`.

        `parked` comes with a fence, `ended` means that the child has ended. `plan` is a draft that
        becomes the session's plan, `default` what the deadline of a person does, `rules` what a
        person's answer must fit, `seen` the work that it is about (a SeenWork as JSON).
        """
        if isinstance(question, str):
            question = without_keys(question)
        arguments = self._holder(work.grant) | {
            "on": on,
            "until_ms": self._store.now_ms() + wait_ms,
            "question": question,
            "plan": plan,
            "default": default,
            "rules": rules,
            "seen": seen,
            "asked": asked if seen is not None else None,
        }
        if child is not None:
            arguments |= {"child": child.id, "child_base": self._store.keys.base(child)}
        records = question_of(work.step, work.grant.address, question, attempt=work.grant.attempt)
        return self._transitions.apply("park", work.ref, arguments, transcript=records)

    def _base_of(self, owner: SessionRef) -> str:
        """The keys of the session that has the folder to itself."""
        return self._store.keys.base(owner)

    def _holder(self, grant: Grant) -> dict[str, JsonValue]:
        return {
            "address": grant.address,
            "fence": grant.fence,
            "nonce": grant.nonce,
            "lease_ms": self._settings.lease_ms,
        }


def loop_run_of(address: str) -> str:
    """Returns the run of the innermost loop around a step; '' for a step in none.

    >>> loop_run_of("green~1[2]/check.lint"), loop_run_of("fetch")
    ('green~1', '')
    """
    return turn_of(block_of(address)) if "/" in address else ""


@lru_cache(maxsize=256)
def _folder(session: str, beneath: str) -> Path:
    """The folder of a step, below that of its session; parsed once for steps in the same one."""
    return Path(session, beneath)


def without_stored_value(outcome: Outcome) -> Outcome:
    """Returns the outcome with digest and size in place of a value stored as an artifact."""
    for one in outcome.artifacts or ():
        if one.name == VALUE:
            return outcome.model_copy(update={"value": marker(one.digest, one.size)})
    return outcome


def _artifacts_argument(outcome: Outcome) -> JsonValue:
    return [one.model_dump(mode="json") for one in outcome.artifacts or ()] or None


def outcome_fields(outcome: Outcome) -> dict[str, JsonValue]:
    """Converts an outcome to arguments of the Lua functions `settle` and `answer`."""
    reason = outcome.reason.model_dump(mode="json", exclude_none=True) if outcome.reason else None
    failed = outcome.word == "failed"
    return {
        "word": outcome.word,
        "verdict": outcome.verdict,
        "recheck": outcome.recheck,
        "reason": reason,
        "retryable": outcome.retryable,
        "text": _teaser(outcome),
        "flaky": outcome.is_proven_flaky or None,
        "failure": quote_error(outcome.reason.text) if failed and outcome.reason else None,
        "usage": _usage_argument(outcome.usage) if outcome.usage else None,
        "thread": _thread_argument(outcome.thread) if outcome.thread else None,
        "digest": outcome.digest,
        "warning": outcome.warning,
        "busy": _busy_argument(outcome.busy) if outcome.busy else None,
        "artifacts": _artifacts_argument(outcome),
    }


def _teaser(outcome: Outcome) -> str:
    """The beginning of an answer, the counts of tests, or the end of a failing program's output."""
    counts = outcome.counts
    if counts is not None and outcome.verdict == "accept" and not counts.failed:
        before = {"red": ", red before the work", "green": ", green before the work, too"}
        return counts.text + before.get(outcome.baseline or "", "")
    is_output = outcome.decided_by in ("exit_code", "raised") and outcome.verdict != "accept"
    return last_lines(outcome.text, TEASER) if is_output else outcome.text[:TEASER]


def _busy_argument(busy: Busy) -> dict[str, JsonValue]:
    after = {} if busy.after_s is None else {"after_ms": round(busy.after_s * 1000)}
    return {"tries": busy.tries, **after}


def _thread_argument(thread: Thread) -> dict[str, JsonValue]:
    """A thread as an argument; empty for a conversation that is reset."""
    return {} if thread.id is None else {"kept": thread.model_dump_json(exclude_none=True)}


def _usage_argument(usage: Usage) -> dict[str, JsonValue]:
    """Usage in the units of the counters."""
    return {
        "cost_micros": usage.cost_micros,
        "tokens_in": usage.input_tokens,
        "tokens_out": usage.output_tokens,
    }


def without_credentials(outcome: Outcome) -> Outcome:
    """Returns an outcome for events and transcript, without credentials in its text and prompt."""
    prompt = None if outcome.prompt is None else without_keys(outcome.prompt)
    return outcome.model_copy(update={"text": without_keys(outcome.text), "prompt": prompt})
