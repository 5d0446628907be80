"""The operations that control sessions, annotate them, and make sessions from others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import JsonValue, ValidationError

from leadhand.client.calls import Answer, Call
from leadhand.client.operation import Ask, Op, Steps
from leadhand.client.requests import (
    given,
    idempotent,
    if_match,
    parsed,
    reads,
    request,
    strictly_dumped,
)
from leadhand.client.sessions import Sessions
from leadhand.client.submit import Submissions
from leadhand.contract import sessions
from leadhand.contract.operation import Operation
from leadhand.contract.sessions import BulkVerb, SessionsWanted
from leadhand.errors import ControlRefused, SessionChanged, SessionUnknown, local_error
from leadhand.models.documents import Budget, Checker
from leadhand.models.problems import Kind
from leadhand.models.validation_messages import first_error
from leadhand.models.views.session import BulkView, SessionView

#: A checker: a command, or the fields of one.
CheckerSpec = str | Mapping[str, object] | Checker

#: The statuses after each verb: a repeated call that finds one of them was executed before.
_LEADS_TO = {
    sessions.STOP.name: {"stopping", "stopped"},
    sessions.RESUME.name: {"active", "waiting"},
    sessions.RETRY.name: {"active", "waiting"},
    sessions.EXIT.name: {"exiting", "exited"},
    sessions.ABORT.name: {"aborting", "aborted"},
}


class Controls(Sessions, Submissions):
    """Controls sessions and their steps, and makes sessions from others."""

    @Op
    def stop(self, session: str, *, seen: SessionView | None = None) -> Steps[SessionView]:
        """Stop a session so that it can be resumed: no step starts, running ones are handed back.

        With `seen`, this and the methods below raise SessionChanged if the session has changed.
        """
        return self._control(sessions.STOP, session, seen)

    @Op
    def resume(
        self,
        session: str,
        max_iterations: int | None = None,
        *,
        after: str | None = None,
        budget: Budget | Mapping[str, float] | None = None,
        as_: Literal["old", "new"] | None = None,
        accept_protected: bool = False,
        seen: SessionView | None = None,
    ) -> Steps[SessionView]:
        """Resume a stopped or failed session; a limit that was reached must be raised.

        A flow runs the version that it was started with, or with `as_="new"` that of its file now.

        `after` names the last point that counts as done (an address, a label, or positions from
        0 such as `1[2]/0`): the steps after it run again. `budget` names those of its limits
        that are to hold from now on. With `accept_protected` changed protected files are taken as
        they are; otherwise what a doer has changed is put back.
        """
        limits = None
        if budget is not None:
            read = budget if isinstance(budget, Budget) else Budget.model_validate(dict(budget))
            limits = read.model_dump(exclude_none=True)
        return self._control(
            sessions.RESUME, session, seen, max_iterations=max_iterations, after=after,
            budget=limits, accept_protected=accept_protected or None, **{"as": as_},
        )  # fmt: skip

    @Op
    def retry(
        self, session: str, step: str, *, seen: SessionView | None = None
    ) -> Steps[SessionView]:
        """Resume a stopped or failed session so that a step and all its dependents run again."""
        return self._control(sessions.RETRY, session, seen, step=step)

    @Op
    def exit(
        self, session: str, reason: str, *, seen: SessionView | None = None
    ) -> Steps[SessionView]:
        """End a session because its task cannot succeed; `reason` says why."""
        return self._control(sessions.EXIT, session, seen, reason=reason)

    @Op
    def abort(
        self, session: str, reason: str | None = None, *, seen: SessionView | None = None
    ) -> Steps[SessionView]:
        """Begin to abort a session: running attempts are cancelled; it cannot be resumed."""
        return self._control(sessions.ABORT, session, seen, reason=reason)

    @Op
    def rehome(
        self, session: str, place: str, *, seen: SessionView | None = None
    ) -> Steps[SessionView]:
        """Move a session and its waiting steps to another place (a worker host)."""
        call = request(sessions.REHOME, session, body={"place": place}, headers=if_match(seen))
        return self._steer(session, call, lambda view: view.place == place)

    @Op
    def delete(
        self, session: str, *, force: bool = False, seen: SessionView | None = None
    ) -> Ask[SessionView | None]:
        """Delete an ended session; with `force`, abort one that runs and delete it at its end.

        Returns None once it is deleted, until then the session that is being aborted. Without
        `force`, raises SessionStillRuns for one that has not ended.
        """
        force_it = "true" if force else None
        call = request(sessions.DELETE, session, headers=if_match(seen), force=force_it)
        return Ask(call, _read_deleted)

    @Op
    def annotate(
        self,
        session: str,
        *,
        title: str | None = None,
        note: str | None = None,
        archived: bool | None = None,
    ) -> Ask[SessionView]:
        """Set a session's title and note, and whether lists hide it; None changes nothing.

        Raises ControlRefused for hiding one that is at work.
        """
        fields = given(title=title, note=note, archived=archived)
        return reads(SessionView, request(sessions.ANNOTATE, session, body=fields))

    @Op
    def bulk(
        self,
        verb: BulkVerb,
        wanted: SessionsWanted,
        *,
        dry_run: bool = True,
        reason: str = "",
        force: bool = False,
        cursor: str | None = None,
        token: str | None = None,
    ) -> Ask[BulkView]:
        """Apply a verb (stop, delete ...) to all matching sessions; by default only count them.

        A call with its `token` leaves out what changed since; one with a `next` is not the last.
        """
        body = {"verb": verb, "filter": wanted.given(), "dry_run": dry_run, "reason": reason,
                "force": force, **given(cursor=cursor, token=token)}  # fmt: skip
        return reads(BulkView, request(sessions.BULK, body=body))

    @Op
    def skip(
        self, session: str, step: str, reason: str | None = None, *, seen: SessionView | None = None
    ) -> Ask[SessionView]:
        """Skip a step that has not run or has failed; dependent steps run without its result.

        A failed session resumes with that. Raises ControlRefused for a step that runs.
        """
        body = given(step=step, reason=reason)
        call = request(sessions.SKIP, session, body=body, headers=if_match(seen))
        return reads(SessionView, call)

    @Op
    def fork(
        self,
        session: str,
        after: str | None = None,
        *,
        inputs: Mapping[str, JsonValue] | None = None,
        tools: Mapping[str, str] | None = None,
        agent: str | None = None,
        folder: Literal["as-is"] | None = None,
        label: str | None = None,
        idempotency_key: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Steps[SessionView]:
        """Create a session that copies another one's outcomes up to a point and runs the rest.

        `after` names the last step that counts as done. What refers to a changed input runs again.
        `folder="as-is"` lets it work in the session's folder as that is now; by default it works
        in a git worktree at the recorded state. Variables are as of
        `submit`: those that the other session got are not taken over.
        """
        return self._copy(
            sessions.FORK, session, idempotency_key, env,
            after=after, inputs=_plain(inputs), tools=_plain(tools), agent=agent, folder=folder,
            label=label,
        )  # fmt: skip

    @Op
    def rerun(
        self,
        session: str,
        *,
        task: str | None = None,
        checkers: Sequence[CheckerSpec] | None = None,
        agent: str | None = None,
        inputs: Mapping[str, JsonValue] | None = None,
        label: str | None = None,
        idempotency_key: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Steps[SessionView]:
        """Start a new session that runs another one's document from the start, with changes."""
        return self._copy(
            sessions.RERUN, session, idempotency_key, env,
            task=task, agent=agent, inputs=_plain(inputs), label=label,
            checkers=None if checkers is None else [_checker(one) for one in checkers],
        )  # fmt: skip

    def _control(
        self,
        operation: Operation[Any],
        session: str,
        seen: SessionView | None,
        **body: Any,
    ) -> Steps[SessionView]:
        call = request(operation, session, body=given(**body), headers=if_match(seen))
        return self._steer(session, call, lambda view: view.status in _LEADS_TO[operation.name])

    def _steer(
        self, session: str, call: Call, is_done: Callable[[SessionView], bool]
    ) -> Steps[SessionView]:
        """Steer a session; a call that was repeated may have been carried out before."""
        answer: Answer = yield call
        try:
            return parsed(SessionView, answer)
        except (ControlRefused, SessionChanged):
            if answer.repeated:
                view = yield from self.session(session)
                if is_done(view):
                    return view
            raise

    def _copy(
        self,
        operation: Operation[Any],
        session: str,
        key: str | None,
        env: Mapping[str, str] | None,
        **body: JsonValue,
    ) -> Steps[SessionView]:
        more = yield from self._with_environment({}, env)
        content = strictly_dumped(given(**body, **more))
        call = request(operation, session, headers=idempotent(key), content=content)
        return parsed(SessionView, (yield call))


def _read_deleted(answer: Answer) -> SessionView | None:
    try:
        response = answer.checked()
    except SessionUnknown:
        if answer.repeated:
            return None
        raise
    return parsed(SessionView, answer) if response.content else None


def _plain(mapping: Mapping[str, JsonValue] | Mapping[str, str] | None) -> JsonValue:
    return None if mapping is None else {**mapping}


def _checker(spec: CheckerSpec) -> JsonValue:
    """A checker as a document has it. Raises RequestInvalid."""
    try:
        checker = Checker.model_validate(spec)
    except ValidationError as error:
        text = f"checkers: {first_error(error)}"
        raise local_error(Kind.INVALID, text, field="checkers") from None
    return checker.model_dump(mode="json", exclude_unset=True)
