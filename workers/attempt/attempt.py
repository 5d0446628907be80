"""Makes attempts at steps, from claim to settle, and continues with quick steps that follow."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pathlib import Path

from app.core.addresses import SessionRef, iteration_of
from app.core.environment import Definitions
from app.core.outcomes import Outcome
from app.core.program import Action, is_before_work
from app.core.records import Hint, Reply
from app.engine import Engine
from app.errors import ReferenceUnresolved, SpecForeign
from app.logs import about
from app.security import signatures
from app.sessions.attempts import FolderState, Work
from app.sessions.callers import find_session_caller
from app.sessions.local_work import is_skipped, skipped_outcome
from leadhand.errors import ArtifactUnknown, SessionUnknown, StoreAway
from leadhand.models.verdicts import ReasonCode
from tasks import tracing
from workers.artifacts import Patience
from workers.attempt.actions import BodyTask, StepFolders, origin_of, run_body
from workers.attempt.approvals import contested_outcome
from workers.attempt.folder_records import FolderRecords
from workers.attempt.heartbeat import Heartbeats, Lease
from workers.attempt.inline_watchdog import describe_call
from workers.attempt.outcomes import (
    open_artifacts,
    secrets_held,
    secrets_of_task,
    secrets_passed,
    store_artifacts,
)
from workers.attempt.output_writer import OutputWriter
from workers.attempt.settle import (
    PARKING,
    RETRY_S,
    Held,
    Looked,
    Settled,
    Settler,
    park,
    retry_while_away,
)
from workers.attempt.workspace_step import diff_target, merge_folder, own_folder
from workers.folders.check_round import (
    Isolation,
    compare_round,
    diff_of_loop,
    is_isolated,
    is_lone,
    isolate,
    lone_check,
)
from workers.folders.spill import attempt_folder
from workers.folders.work_diff import IgnoredFiles, Look, does_work, needs_snapshot, start_diff
from workers.inline_calls import InlineCalls
from workers.processes import environment
from workers.processes.exit_outcome import failed_outcome
from workers.processes.warm_pool import CallSlot, Warm
from workers.registry.agents import AgentBook
from workers.registry.registries import Registry
from workers.registry.tools import ToolCatalogue
from workers.task import conversation_of

log = logging.getLogger(__name__)

#: The most steps and seconds that one process continues without a new message.
STRETCH_STEPS = 50
STRETCH_S = 1.0
#: How many quick steps one worker process holds. A step that waits for the one before it is held,
#: and handed back if that one is slow.
TAKE = 4


class _Waiting:
    """The outcomes of finished checks that are settled with that of the next one."""

    def __init__(self, settler: Settler, go_on: Callable[[Settled], None]) -> None:
        self._settler = settler
        #: Called with each answer of the store.
        self._go_on = go_on
        self.held: list[Held] = []
        #: When they may be settled early once more, on the monotonic clock.
        self._again = 0.0

    def settle(self) -> None:
        """Settle them in one round trip, else one by one."""
        if len(self.held) > 1:
            self._try_all()
        while self.held:
            one = self.held.pop(0)
            settled = self._settler.run_guarded(one.lease, partial(self._settler.settle, one))
            if settled is not None:
                self._go_on(settled)

    def settle_early(self) -> None:
        """Try to settle them while another check runs, which does not wait for the store."""
        if self.held and time.monotonic() >= self._again:
            self._try_all()
            self._again = time.monotonic() + RETRY_S

    def settle_rest(self) -> None:
        """Settle them after an error of another check, which is raised in any case."""
        while self.held:
            try:
                self.settle()
            except Exception:
                log.exception("outcome of a finished check not settled")

    def _try_all(self) -> None:
        """Settle them in one round trip; all stay held if it fails."""
        ours = [one for one in self.held if one.lease.ours]
        answers = self._settler.settle_all(ours) if ours else []
        done = [settled.lease for settled in answers]
        self.held = [one for one in self.held if one.lease not in done]
        for settled in answers:
            self._go_on(settled)


class Attempts:
    """Makes attempts for one worker process."""

    def __init__(
        self,
        engine: Engine,
        *,
        worker: str,
        agents: Callable[[], AgentBook],
        heart: Heartbeats,
        draining: Callable[[], bool] = lambda: False,
        closed: Callable[[], bool] = lambda: False,
        paused: Callable[[], bool] = lambda: False,
        on_no_room: Callable[[], None] = lambda: None,
        outputs: OutputWriter | None = None,
        shelf: ToolCatalogue | None = None,
        of_folder: Callable[[Definitions], Registry] | None = None,
        slot: CallSlot | None = None,
    ) -> None:
        self._engine = engine
        #: Publishes the output of bodies while they run; None publishes nothing.
        self._outputs = outputs
        #: Whether Redis holds an unknown store: then this worker claims no step.
        self._closed = closed
        #: Whether a body would find no room in the spill folder: then it claims no step either.
        self._paused = paused
        self._worker = worker
        self._agents = agents
        self._heart = heart
        self._draining = draining
        self._nonces = _nonces()
        self._warm = Warm()
        self._folders = StepFolders(engine.settings)
        self._inherited = dict(environment.inherited())
        self._shelf = shelf or ToolCatalogue(engine.settings.tools)
        #: Returns the agents and tools for sessions of a folder with definitions.
        self._of_folder = of_folder
        #: The leases of this process, that of the running step first.
        self._in_hand: Sequence[Lease] = ()
        #: Calls functions in this process; without a slot none, as nothing could end them.
        self._inline = None if slot is None else self._inline_calls(slot)
        engine.attempts.open_artifacts = partial(open_artifacts, engine)
        self._settler = Settler(engine, worker=worker, secrets=self._secrets, on_no_room=on_no_room)

    def __call__(self, ref: SessionRef, address: str) -> Sequence[Hint] | None:
        """Claim the step, run it and the quick steps after it; return the hints to publish.

        None if the step could not be claimed.
        """
        sent = time.monotonic()
        with about(session=ref.id, step=address):
            if self._closed() or self._paused():
                why = "Redis holds an unknown store" if self._closed() else "the disk is full"
                log.info("hint dropped", extra={"why": why})
                return None
            answer = self._claim(ref, address)
            if answer is None:
                return None
            if answer.word != "granted":
                log.info("claim refused", extra={"why": answer.why})
                return None
        return self._stretch(ref, self._heart.keep(ref, answer.grants[0], sent=sent))

    def close(self) -> None:
        """End the warm processes of this worker."""
        self._warm.close()

    def publish(self, ref: SessionRef, hints: Sequence[Hint]) -> None:
        """Publish messages for ready steps; if the store is unreachable, the sweep does it."""
        try:
            self._engine.transitions.publish(ref, hints)
        except StoreAway as error:
            log.warning("hints not sent", extra={"session": ref.id, "why": str(error)})

    def _claim(self, ref: SessionRef, address: str) -> Reply | None:
        nonce = next(self._nonces)
        try:
            return self._engine.attempts.claim(ref, address, nonce=nonce, worker=self._worker)
        except (SessionUnknown, StoreAway) as error:
            # The session was deleted, or the sweep will publish the hint again.
            log.info("claim not made", extra={"why": str(error)})
            return None

    def _stretch(self, ref: SessionRef, first: Lease) -> list[Hint]:
        begun, steps = time.monotonic(), 0
        todo, hints = deque([first]), list[Hint]()

        def go_on(settled: Settled) -> None:
            hints.extend(settled.answer.hints)
            kept = self._kept(ref, settled)
            todo.extend(kept)
            # The process may be killed before the next turn: in an inline call that runs meanwhile.
            others = (lease for lease in self._in_hand if lease is not settled.lease)
            self._in_hand = [*others, *kept]

        while todo:
            leases = self._side_by_side(ref, todo)
            self._in_hand = [*leases, *todo]
            steps += len(leases)
            tired = steps + len(todo) >= STRETCH_STEPS or time.monotonic() - begun > STRETCH_S
            room = 0 if tired or self._draining() or self._paused() else max(0, TAKE - len(todo))
            take = room // len(leases)  # for each of them
            if len(leases) > 1:
                self._settle_together(ref, leases, take, go_on)
            elif isinstance(came := self._in_turn(ref, leases[0], take), Settled):
                go_on(came)
        return hints

    def _side_by_side(self, ref: SessionRef, todo: deque[Lease]) -> list[Lease]:
        """The next lease, with the quick checks after it that are settled together with it."""
        leases = [todo.popleft()]
        if not todo or not self._is_quick_check(ref, leases[0]):
            return leases
        while todo and self._is_quick_check(ref, todo[0]):
            leases.append(todo.popleft())
        return leases

    def _is_quick_check(self, ref: SessionRef, lease: Lease) -> bool:
        try:
            step = self._engine.attempts.step(ref, lease.grant.address)
        except Exception:  # noqa: BLE001 - running the step reports the error
            return False
        return step.quick and step.action is Action.CHECK and step.when is None

    def _inline_calls(self, slot: CallSlot) -> InlineCalls:
        def drop_others() -> None:
            for lease in [*self._in_hand][1:]:
                self._heart.drop(lease)

        return InlineCalls(
            slot,
            text=lambda name: describe_call(name, [*self._in_hand]),
            on_handed_back=drop_others,
        )

    def _settle_together(
        self, ref: SessionRef, leases: Sequence[Lease], take: int, go_on: Callable[[Settled], None]
    ) -> None:
        """Run checks one after the other, and settle them in one round trip.

        Each has its own lease, outcome and settle. A slow check delays no other: the finished ones
        are settled while it runs.
        """
        waiting = _Waiting(self._settler, go_on)
        try:
            for lease in leases:
                came = self._in_turn(ref, lease, take, waiting)
                if isinstance(came, Held):
                    waiting.held.append(came)
                elif came is not None:
                    go_on(came)
            waiting.settle()
        except Exception:
            waiting.settle_rest()
            raise
        finally:
            for lease in leases:
                if lease.begun:  # the others are handed back
                    self._heart.drop(lease)

    def _kept(self, ref: SessionRef, settled: Settled) -> list[Lease]:
        """The leases of the steps that a settle granted, with heartbeats from now on."""
        grants = settled.answer.grants
        return [self._heart.keep(ref, grant, sent=settled.sent) for grant in grants]

    def _in_turn(
        self, ref: SessionRef, lease: Lease, take: int, waiting: _Waiting | None = None
    ) -> Settled | Held | None:
        """Run one granted step, unless it waited too long and was handed back.

        With others that wait to be settled, its outcome is returned and not settled.
        """
        address, number = lease.grant.address, lease.grant.attempt
        try:
            if not self._heart.begin(lease):
                return None
            with (
                about(session=ref.id, step=address, attempt=str(number)),
                tracing.step(ref.id, address, attempt=number),
            ):
                if lease.ended.is_set():  # it was cancelled while it waited for the one before it
                    return self._settler.hand_back(lease) if lease.ours else None
                carry_out = partial(self._carry_out, ref, lease, take, waiting)
                return self._settler.run_guarded(lease, carry_out)
        finally:
            if waiting is None:
                self._heart.drop(lease)

    def _carry_out(
        self, ref: SessionRef, lease: Lease, take: int, waiting: _Waiting | None
    ) -> Settled | Held | None:
        """Run the body and settle it; None if this worker no longer owns the attempt."""
        self._in_hand = [lease, *(one for one in self._in_hand if one is not lease)]
        try:
            work = self._work(ref, lease)
        except (ReferenceUnresolved, ArtifactUnknown) as error:
            return self._settler.fail_unresolved(lease, str(error))
        except SpecForeign as error:
            return self._settler.refuse(lease, str(error))
        if work is None:
            return None
        # A process carries out one attempt at a time. Files of the worker's own name their modes.
        umask = work.environment.umask if work.environment.shell else None
        before = None if umask is None else os.umask(umask)
        try:
            return self._carry_out_here(work, lease, take, waiting)
        finally:
            if before is not None:
                os.umask(before)

    def _carry_out_here(
        self, work: Work, lease: Lease, take: int, waiting: _Waiting | None
    ) -> Settled | Held | None:
        moved = self._release_for_real_lock(work, lease)
        if moved is not None:
            return moved
        _log_start(work)
        quiet_task = partial(self._task, work, lease, shown=False)
        failure = self._folders.prepare(work, quiet_task, lease.ended)
        look = self._look(work, lease) if waiting is None and failure is None else None
        outcome = failure or _refused(look) or self._begin(work, lease, look, waiting)
        if outcome is None:
            return None
        lease.came_to = outcome.usage
        if _was_ended(outcome, lease):
            seen = look or self._look_at_stopped_check(work)
            return self._settler.hand_back(lease, outcome.usage, seen, owner=work.owner)
        nonces = list(islice(self._nonces, take))
        if waiting is not None:
            return Held(lease, work, outcome, nonces)
        return self._settler.settle(Held(lease, work, outcome, nonces), look)

    def _work(self, ref: SessionRef, lease: Lease) -> Work | None:
        return retry_while_away(lambda: self._engine.attempts.work(ref, lease.grant), lease)

    def _look(self, work: Work, lease: Lease) -> Looked | None:
        """Snapshot the working folder before the body runs, if the step needs that."""
        if work.cwd is None:
            return None
        action = work.step.action
        compares = work.step.folder and action is Action.JUDGE
        is_alone = is_isolated(work) or is_lone(work)
        if not (compares or is_alone or needs_snapshot(work)):
            return None
        attempts, root = self._engine.attempts, self._folders.worktrees
        spill, top = Path(self._engine.settings.spill), own_folder(work, root)
        at = work.grant.address
        left = retry_while_away(
            lambda: attempts.folder_state(work.ref, at, owner=work.owner), lease
        )
        merge = merge_folder(work)
        # What changes in the folder of a merge while it is stopped is no work of a person's.
        is_no_work = merge is not None and not (is_alone or does_work(work))
        if left is None or is_no_work or (work.grant.approved and action is Action.WORKSPACE):
            return None
        if work.grant.approved:
            left = left._replace(compare=True)
        if compares:
            return compare_round(work, spill, left, top)
        most, target = self._engine.settings.copy_max, diff_target(work, root)
        start = partial(start_diff, work, left, spill, most=most, target=target, top=top or merge)
        if is_alone:
            return self._look_alone(work, left, start, top)
        look = start()
        before = look.before
        if does_work(work) and left.base is None and before is not None:
            IgnoredFiles(look.whole, work).record()
            retry_while_away(lambda: attempts.record_base(work.ref, at, before), lease)
        return look

    def _begin(
        self, work: Work, lease: Lease, look: Looked | None, waiting: _Waiting | None
    ) -> Outcome | None:
        """Run the body, in the folder as a person has approved it, if one has; None as of the body.

        Until the store has recorded that, another attempt compares the folder. It says whether a
        changed one is still bound: otherwise a step that began beside this one may have changed it.
        """
        if look is not None and work.grant.approved:
            changed = isinstance(look, Look) and look.changed
            beat = partial(self._engine.attempts.beat, work.ref, work.grant)
            answer = retry_while_away(lambda: beat(compared=not changed, changed=changed), lease)
            if answer is None or answer.word == "lost":
                return None
            if answer.bound and isinstance(look, Look):
                return contested_outcome(look.changed_files)
        return self._outcome(work, lease, waiting)

    def _look_alone(
        self, work: Work, left: FolderState, start: Callable[[], Look], top: Path | None
    ) -> Looked:
        """Put the work back before a check that has the folder to itself.

        After a stop, what differs may be a person's: it is part of the work, and stays.
        """
        settings, merge = self._engine.settings, merge_folder(work)
        if work.grant.compare and merge is None:
            seen = start()
            if seen.changed:
                return seen
        if is_lone(work) and not (is_isolated(work) and left.work):  # nothing has worked by then
            return lone_check(work, Path(settings.spill), top, most=settings.copy_max)
        return isolate(work, Path(settings.spill), merge or top, left.work)

    def _passed_on(self, work: Work, lease: Lease) -> Outcome | None:
        """The work of the iteration before, for the doer of a recheck; None if it is to start."""
        if work.step.action is not Action.AGENT or not work.grant.is_recheck:
            return None
        attempts = self._engine.attempts
        found = retry_while_away(lambda: attempts.passed_on(work.ref, work.grant), lease)
        return found or Outcome(word="succeeded")  # which is dropped: the attempt is lost

    def _work_diff(self, work: Work, lease: Lease) -> str:
        """The diff of the work that a check judges."""
        attempts, at = self._engine.attempts, work.grant.address
        state = retry_while_away(
            lambda: attempts.folder_state(work.ref, at, owner=work.owner), lease
        )
        if state is None or work.cwd is None:
            return ""
        top = own_folder(work, self._folders.worktrees)
        return diff_of_loop(work, state, Path(self._engine.settings.spill), top)

    def _look_at_stopped_check(self, work: Work) -> Look | None:
        """Snapshot the folder of a check that was ended, so that its changes are no person's."""
        if work.step.action is not Action.CHECK or work.cwd is None:
            return None
        unknown = FolderState(None, compare=False)
        settings = self._engine.settings
        return start_diff(work, unknown, Path(settings.spill), most=settings.copy_max)

    def _release_for_real_lock(self, work: Work, lease: Lease) -> Settled | None:
        """Hand the attempt back to wait for the lock of the folder that its path is a link to."""
        folder = work.locks_another
        if folder is None:
            return None
        sent = time.monotonic()
        answer = retry_while_away(lambda: self._engine.attempts.move_lock(work, folder), lease)
        if answer is None or answer.word == "kept":
            return None
        log.info("step waits for the lock of its real folder", extra={"folder": str(folder)})
        return Settled(answer.model_copy(update={"hints": ()}), sent, lease)

    def _outcome(self, work: Work, lease: Lease, waiting: _Waiting | None) -> Outcome | None:
        """Run the body and return its outcome; None if the step is parked."""
        if is_skipped(work):
            return skipped_outcome(work)
        if work.step.action in PARKING:
            top, secrets = own_folder(work, self._folders.worktrees), self._secrets(work)
            return retry_while_away(lambda: park(self._engine, work, secrets, top=top), lease)
        task = self._task(work, lease)
        if waiting is not None:
            task = replace(task, on_slow=waiting.settle_early)
        elif (passed_on := self._passed_on(work, lease)) is not None:
            task = replace(task, passed_on=passed_on)
        try:
            outcome = run_body(task, lease.ended)
            store = Patience(partial(open_artifacts, self._engine, work.ref, work.grant))
            return retry_while_away(
                lambda: store_artifacts(outcome, task, work.ref, lambda: store), lease
            )
        finally:
            if task.live is not None:
                task.live.end()

    def _task(self, work: Work, lease: Lease, *, shown: bool = True) -> BodyTask:
        task = self._bare_task(work, lease, shown=shown)
        if work.owner is not None:
            task = replace(task, owner=work.owner.id, is_beside=work.is_beside)
        return _with_redacted_output(task)

    def _bare_task(self, work: Work, lease: Lease, *, shown: bool) -> BodyTask:
        settings, grant, conversation = self._engine.settings, work.grant, conversation_of(work)
        (agents, shelf), folders = self._registry_of(work), FolderRecords(self._engine, lease, work)
        return BodyTask(
            session=work.ref.id,
            address=grant.address,
            action=work.step.action,
            iteration=iteration_of(grant.address),
            attempt=grant.attempt,
            inputs=work.inputs,
            cwd=work.cwd,
            protected=folders.protected(work.facts.cwd),
            spill=attempt_folder(settings.spill, work.ref.id, grant.address, fence=grant.fence),
            timeout_s=work.step.timeout_s,
            url=settings.api_url,
            mint=lambda: signatures.mint(_caller(work), secret=settings.secret),
            worker_environment=self._inherited,
            session_environment=work.environment,
            is_free=work.is_free,
            agents=agents,
            default_agent=settings.default_agent,
            retries=work.step.retry.retries,
            tool_hosts=settings.tool_hosts,
            warm=self._warm,
            inline=self._inline,
            shelf=shelf,
            conversation=conversation.name,
            thread=conversation.thread,
            earlier=lambda turn: self._engine.attempts.messages(work.ref, turn),
            failure=grant.failure,
            ending=grant.ending,
            after_stop=grant.compare,
            messages=grant.messages,
            mint_for_session=lambda: self._mint_for_session(_caller(work)),
            on_spent=lease.spent,
            until=lambda: lease.until(work.step.timeout_s),
            origin=origin_of(work) if work.workspace else None,
            own_top=own_folder(work, self._folders.worktrees) if work.workspace else None,
            workspace=work.workspace,
            worktrees=self._folders.worktrees,
            copy_max=settings.copy_max,
            on_workspace=folders.record,
            recorded_work=folders.recorded_work,
            work_diff=lambda: self._work_diff(work, lease),
            reserve=folders.reserve,
            release=folders.release,
            store=self._engine.store.expected_id() or "",
            stored_folders=folders.stored,
            live=self._outputs.open(work.ref, grant) if shown and self._outputs else None,
        )

    def _mint_for_session(self, caller: signatures.Caller) -> str:
        holder = find_session_caller(self._engine, caller)
        return signatures.mint(holder, secret=self._engine.settings.secret)

    def _registry_of(self, work: Work) -> tuple[AgentBook, ToolCatalogue]:
        """The agents and tools for a session: the worker's, and those of the session's folder."""
        if work.definitions is None or self._of_folder is None:
            return self._agents(), self._shelf
        found = self._of_folder(work.definitions)
        return found.agents.current(), found.shelf

    def _secrets(self, work: Work) -> frozenset[str]:
        (agents, shelf), given = self._registry_of(work), work.environment
        names = agents.secret_names | shelf.book.secret_names
        return secrets_held(names, given, self._inherited) | secrets_passed(given)


def _refused(look: Looked | None) -> Outcome | None:
    """The failure of an isolated check whose folder does not have the work alone; else None."""
    why = look.refusal if isinstance(look, Isolation) else None
    if why is None:
        return None
    return failed_outcome(ReasonCode.FAILED_STEP, f"the check did not run: {why}")


def _with_redacted_output(task: BodyTask) -> BodyTask:
    """The task, whose live output is redacted by what is secret for it."""
    if task.live is not None:
        task.live.secrets = partial(secrets_of_task, task)
    return task


def _nonces() -> Iterator[str]:
    """Unique words: no other process uses them, and this one uses each once. Not secret."""
    return map(f"{secrets.token_hex(6)}-{{}}".format, count(1))


def _caller(work: Work) -> signatures.Caller:
    looks = is_before_work(work.step)
    scopes = signatures.LOOKING_SCOPES if looks else signatures.BODY_SCOPES
    return signatures.Caller(work.ref.id, work.grant.address, work.grant.fence, scopes)


def _log_start(work: Work) -> None:
    if not work.step.quick:
        log.info("step started", extra={"action": work.step.action.value})


def _was_ended(outcome: Outcome, lease: Lease) -> bool:
    """Whether the body was cancelled before it finished, so that its outcome does not count.

    The outcome of a body that finished first is recorded even if it was asked to end.
    """
    reason = outcome.reason
    if reason is None or reason.code is not ReasonCode.CANCELLED:
        return False
    lease.end("fenced")  # in case the launcher ended it before this process noticed
    return True
