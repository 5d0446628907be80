"""Reports the end of attempts to the store: settles, releases or refuses them, with retries."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar, cast

from pydantic import JsonValue, TypeAdapter, ValidationError

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome, Usage, deleted_child
from app.core.program import Action
from app.core.records import Reply
from app.engine import Engine
from app.errors import InvalidDocument, ParentRests, ProgramStale
from app.plans.tasks import record_of
from app.redaction import redact, without_secrets
from app.security.command_permission import commands_from_outcomes
from app.sessions.attempts import Settling, Work
from app.truncate import cut
from leadhand.errors import LeadhandError, ProgramNewer, SessionUnknown, StoreAway
from leadhand.flows.documents import AnyDocument
from leadhand.graphs.documents import with_texts
from leadhand.models.forms import parse_rules
from leadhand.models.plans import PlannedTask
from leadhand.models.validation_messages import first_error
from leadhand.models.verdicts import Reason, ReasonCode
from workers.attempt.approvals import settle_or_ask
from workers.attempt.heartbeat import Lease
from workers.folders.check_round import CheckRound, LoneCheck
from workers.folders.work_diff import Look
from workers.processes.process import NoRoom
from workers.task import as_text

#: What looks at the folder of a step before its body and after it.
Looked = Look | CheckRound | LoneCheck
log = logging.getLogger(__name__)
#: Seconds between retries while the store is unreachable.
RETRY_S = 0.5
#: Characters of an exception's message that a step's reason quotes.
WHY_LIMIT = 1_000
T = TypeVar("T")
_DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
_TASKS = TypeAdapter(tuple[PlannedTask, ...])
#: The actions that wait without a worker.
PARKING = frozenset({Action.HUMAN, Action.WAIT, Action.CHILD, Action.PLAN})
#: How often a parked step polls its child session, in case the child's report is lost.
LOOK_MS = 60_000


class Settled(NamedTuple):
    """The store's answer to the end of an attempt."""

    answer: Reply
    #: When the call was sent: the leases that it granted start then.
    sent: float
    #: That of the attempt, which has ended.
    lease: Lease


class Held(NamedTuple):
    """An outcome to settle, with the nonces of the claims that the settle may make."""

    lease: Lease
    work: Work
    outcome: Outcome
    take: Sequence[str]


class Settler:
    """Reports the end of attempts to the store; returns None if this worker no longer owns one."""

    def __init__(
        self,
        engine: Engine,
        *,
        worker: str,
        secrets: Callable[[Work], frozenset[str]],
        on_no_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._secrets = secrets
        #: Called if the disk became full between a claim and the start of its body.
        self._on_no_room = on_no_room

    def settle(self, held: Held, look: Looked | None = None) -> Settled | None:
        """Report an outcome and the folder's diff to the store; None if the attempt is lost."""
        lease, work, outcome, take = held
        if look is not None:
            outcome = look.add_diff(outcome, self._secrets(work))
        patch, changed = (look.patch, look.changed) if look is not None else (None, False)
        worked = look.work if look is not None else None
        sent = time.monotonic()

        def settle() -> Reply:
            return self._engine.attempts.settle(
                work, outcome, take=take, worker=self._worker, patch=patch, changed=changed,
                worked=worked,
            )  # fmt: skip

        answer = retry_while_away(settle, lease)
        if answer is None:
            log.warning("outcome dropped", extra={"word": outcome.word})
            return None
        _log_end(work, outcome, answer.word)
        return Settled(answer, sent, lease)

    def settle_all(self, held: Sequence[Held]) -> list[Settled]:
        """Report outcomes to the store in one round trip, without a retry; none after an error.

        Then some may be settled. Settling each by itself reports the error.
        """
        sent = time.monotonic()
        each = [Settling(one.work, one.outcome, one.take) for one in held]
        try:
            answers = self._engine.attempts.settle_all(each, worker=self._worker)
        except Exception:  # noqa: BLE001 - settling them one by one reports the error
            return []
        settled: list[Settled] = []
        for one, answer in zip(held, answers, strict=True):
            _log_end(one.work, one.outcome, answer.word)
            settled.append(Settled(answer, sent, one.lease))
        return settled

    def run_guarded(self, lease: Lease, carry_out: Callable[[], T]) -> T | Settled | None:
        """Call `carry_out`; release the attempt if the disk is full, fail it on unexpected errors.

        Otherwise the attempt would stay unreported, be lost, and be retried without end.
        """
        try:
            return carry_out()
        except (StoreAway, SessionUnknown, ProgramNewer, ProgramStale):
            raise
        except NoRoom as error:
            self._on_no_room()
            return self.hand_back(lease, lease.used, why=str(error))
        except Exception as error:
            if not lease.ours:
                raise
            log.exception("attempt broke")
            why = redact(cut(f"internal error: {type(error).__name__}: {error}", WHY_LIMIT))
            return self.refuse(lease, why)

    def refuse(self, lease: Lease, why: str) -> Settled | None:
        """Fail a step whose program has no valid signature, or whose outcome cannot be settled."""
        log.error("step refused", extra={"why": why})
        sent = time.monotonic()
        usage = lease.came_to or lease.used
        answer = retry_while_away(
            lambda: self._engine.attempts.refuse(lease.ref, lease.grant, why=why, usage=usage),
            lease,
        )
        return None if answer is None else Settled(answer, sent, lease)

    def fail_unresolved(self, lease: Lease, why: str) -> Settled | None:
        """Fail a step whose references cannot be resolved."""
        work = self._engine.attempts.bare_work(lease.ref, lease.grant)
        reason = Reason(code=ReasonCode.FAILED_STEP, text=why, at=lease.grant.address)
        outcome = Outcome(word="failed", text=why, reason=reason, retryable=False)
        return self.settle(Held(lease, work, outcome, ()))

    def hand_back(
        self,
        lease: Lease,
        usage: Usage | None = None,
        look: Looked | None = None,
        *,
        why: str = "",
        owner: SessionRef | None = None,
    ) -> Settled | None:
        """Release an attempt for other workers without counting it as an attempt.

        `why` is the reason if the attempt was not cancelled. `owner` is the session that has the
        folder to itself, if that is another one.
        """
        why = why or str(lease.why)
        seen = look if lease.ours else None
        release = partial(
            self._engine.attempts.release, lease.ref, lease.grant, why=why, usage=usage
        )
        if seen is not None:  # a person may have changed the work before this attempt
            digest, changed = seen.digest(), seen.changed
            release = partial(
                release, digest=digest, changed=changed, worked=seen.work, owner=owner
            )
        log.info("step handed back", extra={"why": why})
        sent = time.monotonic()
        answer = retry_while_away(release, lease)
        if answer is None:
            return None
        return Settled(answer.model_copy(update={"hints": ()}), sent, lease)


def retry_while_away(call: Callable[[], T], lease: Lease) -> T | None:
    """Repeats a call until the store is reachable; returns its result, None if no longer owner."""
    while lease.ours:
        try:
            return call()
        except StoreAway:
            # The heartbeat thread notices an expired lease; a cancelled body may still be settled.
            time.sleep(RETRY_S)
    return None


def _log_end(work: Work, outcome: Outcome, answer: str) -> None:
    """Log the end of a step, but not of a quick one that succeeded: a line costs as much as it."""
    if not work.step.quick or outcome.word == "failed":
        fields = {"word": outcome.word, "verdict": outcome.verdict, "answer": answer}
        log.info("step settled", extra=fields)


def park(
    engine: Engine, work: Work, secrets: frozenset[str] = frozenset(), *, top: Path | None = None
) -> Outcome | None:
    """Park a step until a person, time, child or plan; return an outcome if nothing is waited for.

    `top` is the session's own worktree or copy.
    """
    match work.step.action:
        case Action.WAIT:
            seconds = cast("float", work.inputs.get("seconds", 0))
            on: Literal["stop", "wait"] = "stop" if work.inputs.get("on") == "stop" else "wait"
            engine.attempts.park(work, on=on, wait_ms=round(float(seconds) * 1000))
        case Action.HUMAN:
            return _ask(engine, work, secrets, top)
        case Action.PLAN:
            engine.attempts.park(work, on="plan", wait_ms=LOOK_MS, plan=_draft(work))
        case Action.CHILD:
            return _child(engine, work)
        case _:
            raise AssertionError(work.step.action)
    return None


def _ask(engine: Engine, work: Work, secrets: frozenset[str], top: Path | None) -> Outcome | None:
    """Ask a person, unless an answer counts by now.

    Secrets are removed from the question: it is shown to many readers.
    """
    asked = settle_or_ask(engine, work, top, secrets)
    if isinstance(asked, Outcome):
        return asked
    question = without_secrets(work.inputs.get("question"), secrets)
    rules = work.inputs.get("rules")
    has_default = parse_rules(rules).default is not None
    engine.attempts.park(
        work,
        on="human",
        wait_ms=round(work.step.timeout_s * 1000),
        question=asked.text(question) if isinstance(question, str) else question,
        # A draft that is asked about once more keeps the edits of people.
        plan=_draft(work) if asked.times == 1 else None,
        default="answer" if has_default else work.inputs.get("default"),
        rules=rules,
        seen=None if asked.seen is None else asked.seen.model_dump_json(exclude_none=True),
        asked=asked.times,
    )
    return None


def _draft(work: Work) -> JsonValue:
    """The draft of a plan that a step adopts, as an argument of the transition; None without."""
    draft, settings = work.inputs.get("draft"), work.inputs.get("settings")
    if not isinstance(draft, dict) or not isinstance(settings, dict):
        return None
    tasks = _TASKS.validate_python(draft["tasks"])
    return {**settings, "tasks": [record_of(task) for task in tasks]}


def _child(engine: Engine, work: Work) -> Outcome | None:
    """Submit the child session, or find that of an earlier attempt, and wait for its end."""
    grant = work.grant
    try:
        document = _DOCUMENT.validate_python(_with_arguments(work.inputs))
        _refuse_fetched_commands(document, work.step.inputs["document"])
        document = _in_same_folder(document, work)
        # Only who submits a session names a receiver: a program may come from somebody else's data.
        document = document.model_copy(update={"webhook": None})
        submitted = engine.submit.document(
            document,
            idempotency_key=f"{work.ref.id}:{grant.address}",
            root=work.ref.root,
            parent={
                "session": work.ref.id,
                "address": grant.address,
                "fence": grant.fence,
                "base": engine.store.keys.base(work.ref),
            },
        )
    except StoreAway:
        raise
    except ParentRests:  # the session was stopped or ended first; a later attempt submits the child
        engine.attempts.release(work.ref, grant, why="stop")
        return None
    except (ValidationError, LeadhandError, KeyError) as error:
        why = first_error(error) if isinstance(error, ValidationError) else error
        text = f"the child session cannot be started: {why}"
        reason = Reason(code=ReasonCode.FAILED_STEP, text=text)
        return Outcome(word="failed", text=text, reason=reason, retryable=False)
    child = SessionRef(submitted.session, work.ref.root)
    answer = engine.attempts.park(work, on="child", wait_ms=LOOK_MS, child=child)
    if answer.word != "ended":
        return None
    fields = engine.store.fields(child)
    if "status" not in fields:
        return deleted_child(child.id)
    return engine.reports.outcome_for(work.step, child, fields)


def _with_arguments(inputs: Mapping[str, JsonValue]) -> JsonValue:
    """The child's document with the inputs of a flow, or the texts of a session, of this call."""
    document, given = inputs["document"], inputs.get("arguments")
    if not isinstance(document, dict) or not isinstance(given, dict):
        return document
    texts = {name: str(as_text(value)) for name, value in given.items()}
    if "session" in inputs:
        return with_texts(document, texts)
    known = document.get("inputs")
    return {**document, "inputs": {**(known if isinstance(known, dict) else {}), **texts}}


def _in_same_folder(document: AnyDocument, work: Work) -> AnyDocument:
    """The child's document, in the folder that its parent has to itself if it names the original.

    The path of that folder was not known when the parent's program was compiled.
    """
    own = work.workspace
    if own is None or own["do"] != "open" or document.cwd != own["origin"]:
        return document
    return document.model_copy(update={"cwd": work.facts.cwd})


def _refuse_fetched_commands(document: AnyDocument, written: JsonValue) -> None:
    """Raise InvalidDocument if the document has commands that come from an outcome.

    Outcomes are not signed: a document from one may name agents, but bring no commands.
    """
    for field in commands_from_outcomes(document, written):
        hint = "a document that comes from an outcome may only name agents; name one"
        raise InvalidDocument(f"document.{field}", "${...}", hint)
