"""The local steps of a session: claims, heartbeats and outcomes of the program that submitted it.

That program calls the API and consumes no queue of Celery's. A session whose local steps are ready
while no such program calls is stopped with the reason `lost`; a resume takes it up.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Iterable, Iterator

from pydantic import JsonValue

from app.core.addresses import SessionRef, path_of
from app.core.artifacts import INLINE_BYTES, Artifact
from app.core.outcomes import Outcome
from app.core.program import LOCAL, SCHEMA_VERSION
from app.core.records import Grant, Reply, StepRecord
from app.core.routing import full_queue
from app.core.states import Seen, SessionStatus
from app.errors import InvalidDocument, ReferenceUnresolved, SpecForeign
from app.fleet.inventory import inventory_of, text_of
from app.programs import Registry
from app.redaction import without_keys, without_secrets
from app.security import signatures
from app.sessions.attempts import Attempts, Work
from app.sessions.expiry import Expiry
from app.settings import Settings
from app.store.artifact_folder import ArtifactFolder, Part
from app.store.store import Store
from app.transitions import Transitions
from app.truncate import cut
from leadhand.errors import ArtifactChanged, ArtifactsFull, ArtifactUnknown
from leadhand.models.local_work import (
    LOST_AFTER_S,
    VALUE_CHARACTERS,
    Attempt,
    BeatWork,
    ClaimWork,
    SettleWork,
)
from leadhand.models.tool_schemas import LOCAL_PREFIX
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.session import BeatView, SettledView, WorkGrant, WorkView

_FALSY = (None, False, "", 0, "false", "no", "0")
log = logging.getLogger(__name__)
#: The most characters of the text of an outcome.
TEXT_CHARACTERS = 64_000
#: The most steps that one claim looks at: those that are ready, and those that run.
LOOKED_AT = 1_000


def is_skipped(work: Work) -> bool:
    """Whether to skip a step: its condition is false, or a step it needs was skipped."""
    if "when" not in work.inputs:
        return False
    value = work.inputs["when"]
    return value in _FALSY or value == [] or value == {}


def skipped_outcome(work: Work) -> Outcome:
    """Returns the outcome of a skipped step, with the reason if its template has one."""
    why = work.inputs.get("skipped")
    if why is None:
        return Outcome(word="skipped")
    reason = Reason(code=ReasonCode.CONDITION, text=str(why), at=work.grant.address)
    return Outcome(word="skipped", reason=reason)


class LocalWork:
    """Serves the workers of single sessions. All methods raise SessionUnknown, StoreAway."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        registry: Registry,
        transitions: Transitions,
        attempts: Attempts,
        expiry: Expiry,
        folder: ArtifactFolder,
    ) -> None:
        self._store = store
        self._settings = settings
        self._registry = registry
        self._transitions = transitions
        self._attempts = attempts
        self._expiry = expiry
        self._folder = folder

    def token(self, session: str) -> str | None:
        """Return the token for a session's local steps, always the same, or None without any."""
        ref = self._registry.ref(session)
        program = self._registry.program(self._registry.facts(ref).program)
        if not any(getattr(node, "queue", "") == LOCAL for _, node in program.walk()):
            return None
        created = self._store.values(ref, "session", ["created"])["created"]
        caller = signatures.Caller.of_work(session, int(created))
        return signatures.mint(caller, secret=self._settings.secret)

    def open(self, session: str, asked: ClaimWork) -> None:
        """Record that a worker claims local steps, and expire the attempts of those it replaces."""
        ref = self._registry.ref(session)
        self._note_worker(ref)
        if asked.takes_over:
            mine = _owner(ref, asked.worker)
            for address, record in self._running(ref):
                if record.owner and record.owner != mine:
                    self._expiry.expire(ref, address, gone=record.owner)

    def claim(self, session: str, asked: ClaimWork) -> WorkView:
        """Claim a session's next ready local step; the view has no grant if none is ready.

        Steps are claimed in document order, then retries that are due and were not offered yet. The
        same nonce gets the same step again. Steps that are skipped or cannot be resolved are
        settled here.
        """
        ref = self._registry.ref(session)
        while True:
            status = self._status(ref)
            if status != SessionStatus.ACTIVE:
                return WorkView(status=status)
            grant = self._claim_first(ref, asked, self._candidates(ref, asked.nonce))
            next_s = None
            if grant is None:
                grant, next_s = self._claim_retry(ref, asked)
            if grant is None:
                return WorkView(status=status, next_s=next_s)
            view = self._work_grant(ref, *grant)
            if view is not None:
                return WorkView(status=status, grant=view)

    def _claim_first(
        self, ref: SessionRef, asked: ClaimWork, addresses: Iterable[str]
    ) -> tuple[Grant, int] | None:
        """The grant of the first step that can be claimed, and the server's time."""
        owner = _owner(ref, asked.worker)
        for address in addresses:
            reply = self._attempts.claim(
                ref, address, nonce=asked.nonce, worker=owner, is_local=True
            )
            if reply.word == "granted":
                return reply.grants[0], reply.now
        return None

    def _claim_retry(
        self, ref: SessionRef, asked: ClaimWork
    ) -> tuple[tuple[Grant, int] | None, float | None]:
        """The grant of a retry that is due; else the seconds until the next one, if one waits."""
        retries = self._retries(ref)
        due = [address for address, wait_s in retries.items() if wait_s <= 0]
        grant = self._claim_first(ref, asked, due)
        later = [wait_s for wait_s in retries.values() if wait_s > 0]
        return grant, min(later, default=None)

    def beat(self, session: str, asked: BeatWork) -> BeatView:
        """Extend the lease of a local step's attempt; returns the worker's order and the lease."""
        ref = self._registry.ref(session)
        self._require_local(ref, asked)
        self._note_worker(ref)
        reply = self._attempts.beat(ref, _grant_of(asked))
        lease_s = None if reply.lease is None else max(0.0, (reply.lease - reply.now) / 1000)
        return BeatView(order=reply.word, lease_s=lease_s)

    def settle(self, session: str, asked: SettleWork) -> SettledView:
        """Record the outcome of a local step's attempt, or release it; returns the result.

        An outcome is recorded once. Raises InvalidDocument for a value that is too long.
        """
        ref = self._registry.ref(session)
        self._require_local(ref, asked)
        if asked.outcome == "released":
            why = "the process that carried it out ends"
            reply = self._attempts.release(ref, _grant_of(asked), why=why)
            return SettledView(result=reply.word, status=self._status(ref))
        outcome = self._with_artifact(ref, asked, outcome_of(self._with_value(asked)))
        record = self._store.steps(ref, [asked.address]).get(asked.address)
        grant = _grant_of(asked, attempt=record.attempt if record is not None else 0)
        work = self._attempts.bare_work(ref, grant)
        reply = self._settle(ref, work, outcome)
        return SettledView(result=reply.word, status=self._status(ref))

    def stop_if_abandoned(self, ref: SessionRef, address: str) -> bool:
        """Stop a session whose local steps no worker asked for lately; returns if it tried.

        The sweep asks, for each step that it finds in `ready`. The limit is LOST_AFTER_S seconds.
        """
        if not self._is_local(ref, address):
            return False
        now = self._store.now_ms()
        fields = self._store.values(ref, "session", ["status", "updated"])
        seen_ms = max(self._worker_seen_ms(ref), int(fields.get("updated") or 0))
        if fields.get("status") != SessionStatus.ACTIVE or now - seen_ms < LOST_AFTER_S * 1000:
            return False
        text = (
            f"no process has claimed its local steps for {LOST_AFTER_S:.0f} s; resume it in a"
            " program that has the tools"
        )
        arguments: dict[str, JsonValue] = {
            "verb": "stop",
            "nonce": secrets.token_hex(8),
            "from": [SessionStatus.ACTIVE.value],
            "reason": Reason(code=ReasonCode.LOST, text=text).model_dump(mode="json"),
            "seen": Seen(fields["status"], int(fields["updated"])).stored_fields(),
        }
        reply = self._transitions.apply("control", ref, arguments)  # unless it has changed since
        log.warning("session has no worker", extra={"session": ref.id, "reply": reply.word})
        return True

    def _work_grant(self, ref: SessionRef, grant: Grant, now_ms: int) -> WorkGrant | None:
        """What the worker calls; None if the step needs no call and was settled."""
        try:
            work = self._attempts.work(ref, grant)
        except (ReferenceUnresolved, ArtifactUnknown) as error:
            reason = Reason(code=ReasonCode.FAILED_STEP, text=str(error), at=grant.address)
            outcome = Outcome(word="failed", text=str(error), reason=reason, retryable=False)
            self._settle(ref, self._attempts.bare_work(ref, grant), outcome)
            return None
        except SpecForeign as error:
            self._transitions.dispatch(ref, self._attempts.refuse(ref, grant, why=str(error)))
            return None
        if is_skipped(work):
            self._settle(ref, work, skipped_outcome(work))
            return None
        arguments = work.inputs.get("arguments")
        return WorkGrant(
            address=grant.address,
            step=work.step.label or work.step.id,
            tool=str(work.inputs.get("tool")).removeprefix(LOCAL_PREFIX),
            arguments=arguments if isinstance(arguments, dict) else {},
            fence=grant.fence,
            nonce=grant.nonce,
            attempt=grant.attempt,
            timeout_s=work.step.timeout_s,
            lease_s=max(0.0, (grant.lease - now_ms) / 1000),
            key=f"{ref.id}:{grant.address}",
        )

    def _with_artifact(self, ref: SessionRef, asked: SettleWork, outcome: Outcome) -> Outcome:
        """The outcome with a reference to its value if that is long; without room, a failure."""
        text = json.dumps(outcome.value, ensure_ascii=False, separators=(",", ":"))
        data = text.encode("utf-8", "replace")
        if len(data) <= INLINE_BYTES:
            return outcome
        digest = hashlib.sha256(data).hexdigest()
        uploader = f"{ref.id}/{asked.address}/{asked.fence}"
        try:
            self._folder.put_part(digest, uploader, Part(0, len(data), data))
        except (ArtifactsFull, ArtifactChanged) as error:
            why = f"the result cannot be stored: {error}"
            reason = Reason(code=ReasonCode.FAILED_STEP, text=why, at=asked.address)
            return Outcome(word="failed", text=why, reason=reason, retryable=True)
        stored = Artifact(
            name="value", digest=digest, size=len(data), media_type="application/json"
        )
        return outcome.model_copy(update={"artifacts": (stored,)})

    def _with_value(self, asked: SettleWork) -> SettleWork:
        """The report with the value of its artifact. Raises InvalidDocument."""
        if asked.artifact is None:
            return asked
        data = self._folder.read(asked.artifact)
        if data is None:
            raise InvalidDocument("artifact", asked.artifact, "upload it before the outcome")
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        # Its attempt's nonce shows that the caller knows the bytes, not only their digest.
        if not isinstance(found, dict) or found.get("nonce") != asked.nonce:
            hint = 'give an artifact of the JSON {"nonce": NONCE, "value": VALUE} of this attempt'
            raise InvalidDocument("artifact", asked.artifact, hint)
        return asked.model_copy(update={"value": found.get("value")})

    def _settle(self, ref: SessionRef, work: Work, outcome: Outcome) -> Reply:
        reply = self._attempts.settle(work, outcome, take=(), worker=_name(ref))
        self._transitions.publish(ref, reply.hints)
        return reply

    def _candidates(self, ref: SessionRef, nonce: str) -> Iterator[str]:
        """The step that this nonce has claimed, or the ready local steps in the program's order."""
        known = [address for address, record in self._running(ref) if record.nonce == nonce]
        if known:
            yield from known
            return
        queue = f"{_name(ref)}<"
        hinted = self._store.members(ref, "hinted", LOOKED_AT)
        found = [one.removeprefix(queue) for one in hinted if one.startswith(queue)]
        program = self._registry.program(self._registry.facts(ref).program)
        order = {path: number for number, (path, _) in enumerate(program.walk())}
        yield from sorted(found, key=lambda at: (order.get(path_of(at), len(order)), len(at), at))

    def _retries(self, ref: SessionRef) -> dict[str, float]:
        """The local steps that wait for the time of a retry, and the seconds until then.

        They have no hint before a sweep finds that they are due, which may be a second later.
        """
        running = set(self._store.members(ref, "running", LOOKED_AT))
        live = self._store.members(ref, "live", LOOKED_AT)
        ready = [one for one in live if one not in running and self._is_local(ref, one)]
        due = {
            address: record.due
            for address, record in self._store.steps(ref, ready).items()
            if record.state == "ready" and record.due is not None and record.blocked is None
        }
        now = self._store.now_ms() if due else 0
        return {address: (due_ms - now) / 1000 for address, due_ms in due.items()}

    def _running(self, ref: SessionRef) -> list[tuple[str, StepRecord]]:
        """The local steps that run."""
        addresses = [
            one
            for one in self._store.members(ref, "running", LOOKED_AT)
            if self._is_local(ref, one)
        ]
        return [*self._store.steps(ref, addresses).items()]

    def _is_local(self, ref: SessionRef, address: str) -> bool:
        program = self._registry.program(self._registry.facts(ref).program)
        step = program.step_or_none(address)
        return step is not None and step.queue == LOCAL

    def _require_local(self, ref: SessionRef, asked: Attempt) -> None:
        """Raises InvalidDocument unless the attempt is one at a local step."""
        if not self._is_local(ref, asked.address):
            hint = "give the address of a local step, as its claim returned it"
            raise InvalidDocument("address", asked.address[:200], hint)

    def _status(self, ref: SessionRef) -> str:
        return self._store.values(ref, "session", ["status"]).get("status", "deleted")

    def _note_worker(self, ref: SessionRef) -> None:
        """Publish the inventory of the session's own worker; it expires if it stops calling."""
        name = _name(ref)
        text = text_of(
            {
                "place": "",
                "queues": [name],
                "consumes": [name],
                "concurrency": 1,
                "schema_version": SCHEMA_VERSION,
                "session": ref.id,
            },
            now_ms=self._store.now_ms(),
            holds_ms=round(LOST_AFTER_S * 1000),
        )
        self._store.fleet().publish_inventory(name, text)

    def _worker_seen_ms(self, ref: SessionRef) -> int:
        text = self._store.fleet().worker(_name(ref))
        return 0 if text is None else inventory_of(_name(ref), text).seen_ms


def outcome_of(asked: SettleWork) -> Outcome:
    """Converts a local worker's report to an outcome, redacted; InvalidDocument if too long."""
    text = _json_of(asked.value)
    if asked.artifact is None and len(text) > VALUE_CHARACTERS:
        hint = f"a value has at most {VALUE_CHARACTERS:,} characters as JSON; upload an artifact"
        raise InvalidDocument("value", f"{len(text):,} characters", hint)
    value = without_secrets(asked.value)
    if asked.outcome == "succeeded":
        shown = asked.value if isinstance(asked.value, str) else text
        shown = "" if asked.value is None else shown
        return Outcome(
            word="succeeded", value=value, text=cut(without_keys(shown), TEXT_CHARACTERS)
        )
    why = without_keys(asked.error) or "it failed without a message"
    reason = Reason(code=ReasonCode(asked.why), text=why, at=asked.address)
    return Outcome(word="failed", value=value, text=why, reason=reason, retryable=asked.retryable)


def _json_of(value: JsonValue) -> str:
    """The JSON of a value. Raises InvalidDocument for one that would change: 1e400, a surrogate."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError as error:
        hint = "give finite numbers, and texts that UTF-8 can encode"
        raise InvalidDocument("value", str(error)[:200], hint) from None
    return text


def _grant_of(asked: Attempt, attempt: int = 0) -> Grant:
    """The attempt in the form that the transitions take; they compare fence and nonce."""
    return Grant(
        address=asked.address, fence=asked.fence, nonce=asked.nonce, attempt=attempt,
        lease=0, deadline=0, lost=0, failed=0,
    )  # fmt: skip


def _name(ref: SessionRef) -> str:
    """The queue of the session's local steps, which is its worker's name too."""
    return full_queue(LOCAL, place="", session=ref.id)


def _owner(ref: SessionRef, worker: str) -> str:
    return f"{_name(ref)}/{worker}"
