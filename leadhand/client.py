"""Speaks to Leadhand's API from Python."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2
from pydantic import BaseModel, TypeAdapter, ValidationError

from leadhand.documents import LoopDocument, WorkflowDocument
from leadhand.errors import (
    AnswerUnreadable,
    ControlRefused,
    SessionStillRuns,
    SessionUnknown,
    TokenUnknown,
    WaitTimedOut,
)
from leadhand.following import BEGINNING, follow
from leadhand.limits import PATH as LIMITS
from leadhand.limits import LimitView, removal, setting
from leadhand.paths import session_path
from leadhand.settings import ClientSettings
from leadhand.tokens import PATH as TOKENS
from leadhand.tokens import NewToken, Quotas, TokenView, creation, revocation
from leadhand.transport import Call, Transport
from leadhand.views import (
    Event,
    FleetView,
    LedgerEntry,
    Page,
    QueueView,
    ResultView,
    SessionView,
    StepView,
    WorkerView,
)

M = TypeVar("M", bound=BaseModel)

#: Where each verb leads: a repeated call that finds the session there was carried out before.
_LEADS_TO = {
    "stop": {"stopping", "stopped"},
    "resume": {"active", "waiting"},
    "exit": {"exiting", "exited"},
    "abort": {"aborting", "aborted"},
}
_JSON: TypeAdapter[Any] = TypeAdapter(Any)
_SOONEST_LOOK_S = 0.05
_LATEST_LOOK_S = 1.0


class Client:
    """One API, by its address, or by the environment, or the current folder's embedded stack.

    Every call bears a broken connection and a Redis that is away for a while: it is tried again
    for `patience_s`, and carried out once; `say` hears of it. A client may be shared between
    threads.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        patience_s: float = 30.0,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._held = ExitStack()
        self.url, token = _address(url, token, self._held)
        self._transport = self._held.enter_context(
            closing(Transport(self.url, token, timeout_s=timeout_s, patience_s=patience_s, say=say))
        )

    def submit(
        self,
        document: LoopDocument | WorkflowDocument | Mapping[str, Any],
        idempotency_key: str | None = None,
    ) -> SessionView:
        """Start a session. The same key with the same document is the same session."""
        key = idempotency_key or uuid.uuid4().hex
        call = Call(
            "POST",
            "/v1/sessions",
            headers={"Idempotency-Key": key},
            content=_json(document),
        )
        return self._read(SessionView, call)

    def session(self, session: str) -> SessionView:
        """One session as it is now. Raises SessionUnknown."""
        return self._read(SessionView, Call("GET", session_path(session)))

    def sessions(
        self,
        *,
        status: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[SessionView]:
        """Some of the sessions, the newest first."""
        params = _given(status=status, kind=kind, limit=limit, cursor=cursor)
        return self._read(Page[SessionView], Call("GET", "/v1/sessions", params=params))

    def result(self, session: str) -> ResultView:
        """How a session ended. Raises SessionStillRuns while it has not."""
        return self._read(ResultView, Call("GET", session_path(session, "result")))

    def steps(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[StepView]:
        """Some of a session's steps, in the order in which they came up."""
        params = _given(limit=limit, cursor=cursor)
        return self._read(
            Page[StepView], Call("GET", session_path(session, "steps"), params=params)
        )

    def ledger(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[LedgerEntry]:
        """Some of a session's iterations, in the order in which they ended."""
        params = _given(limit=limit, cursor=cursor)
        return self._read(
            Page[LedgerEntry], Call("GET", session_path(session, "ledger"), params=params)
        )

    def events(self, session: str, after: str | None = None) -> Iterator[Event]:
        """Each event after the one named, old ones first, until the session has ended."""
        return follow(self._transport, session, after=after or BEGINNING)

    def event_page(
        self, session: str, *, after: str | None = None, limit: int | None = None
    ) -> Page[Event]:
        """Some of the events that are there already; `next` is the `after` of the next page."""
        params = _given(after=after, limit=limit)
        return self._read(Page[Event], Call("GET", session_path(session, "events"), params=params))

    def stop(self, session: str) -> SessionView:
        """Let nothing new start, and hand back what runs; resume goes on from there."""
        return self._control(session, "stop")

    def resume(self, session: str, max_iterations: int | None = None) -> SessionView:
        """Go on with a stopped or failed session; a passed limit must be raised."""
        return self._control(session, "resume", max_iterations=max_iterations)

    def exit(self, session: str, reason: str) -> SessionView:
        """End a session by intent, with the reason."""
        return self._control(session, "exit", reason=reason)

    def abort(self, session: str, reason: str | None = None) -> SessionView:
        """End a session by force."""
        return self._control(session, "abort", reason=reason)

    def rehome(self, session: str, place: str) -> SessionView:
        """Bind a session to another place, with all that waits in it."""
        content = _JSON.dump_json({"place": place})
        call = Call("POST", session_path(session, "rehome"), content=content)
        answer = self._transport.send(call)
        try:
            return _parsed(SessionView, answer.checked())
        except ControlRefused:
            view = self.session(session)
            if answer.repeated and view.place == place:
                return view  # It has ended since the try whose answer was lost.
            raise

    def limits(self) -> list[LimitView]:
        """All limits, by key."""
        return self._read(Page[LimitView], Call("GET", LIMITS)).items

    def set_limit(
        self, key: str, *, concurrency: int | None = None, per_minute: float | None = None
    ) -> LimitView:
        """Let at most so many attempts with a key run, or so many begin in a minute."""
        return self._read(LimitView, setting(key, concurrency=concurrency, per_minute=per_minute))

    def remove_limit(self, key: str) -> None:
        """Let as many attempts with a key run as there are workers for."""
        self._transport.send(removal(key)).checked()

    def delete(self, session: str) -> None:
        """Forget a session. Raises SessionStillRuns while it has not ended."""
        answer = self._transport.send(Call("DELETE", session_path(session)))
        try:
            answer.checked()
        except SessionUnknown:
            if not answer.repeated:
                raise

    def workers(self) -> list[WorkerView]:
        """The worker hosts that told of themselves lately, each with what it does now."""
        return self._read(Page[WorkerView], Call("GET", "/v1/workers")).items

    def tokens(self) -> list[TokenView]:
        """All tokens but the API's own, the newest first."""
        return self._read(Page[TokenView], Call("GET", TOKENS)).items

    def create_token(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        expires_s: int | None = None,
        quotas: Quotas | None = None,
    ) -> NewToken:
        """Make a token; its text is in the answer and nowhere else."""
        return self._read(NewToken, creation(name, scopes, expires_s=expires_s, quotas=quotas))

    def revoke_token(self, token: str) -> None:
        """Let nobody in with a token any more, by its id. Raises TokenUnknown."""
        answer = self._transport.send(revocation(token))
        try:
            answer.checked()
        except TokenUnknown:
            if not answer.repeated:
                raise

    def queues(self) -> list[QueueView]:
        """Every queue, with what stands in it and who takes from it."""
        return self._read(Page[QueueView], Call("GET", "/v1/queues")).items

    def fleet(self) -> FleetView:
        """The whole fleet at one glance."""
        return self._read(FleetView, Call("GET", "/v1/fleet"))

    def ping(self) -> None:
        """Return once the API and its Redis answer. Raises ApiAway or Unavailable."""
        self._transport.send(Call("GET", "/readyz")).checked()

    def wait(self, session: str, timeout: float | None = None) -> ResultView:
        """How the session ended, once it has. Raises WaitTimedOut after so many seconds."""
        since = time.monotonic()
        while True:
            view = self.session(session)
            if view.ended:
                try:
                    return self.result(session)
                except SessionStillRuns:
                    pass  # Somebody has resumed it in between.
            waited_s = time.monotonic() - since
            if timeout is not None and waited_s >= timeout:
                raise WaitTimedOut(session, view.status, timeout)
            time.sleep(_next_look_s(waited_s, timeout))

    def close(self) -> None:
        """Close the connections, and let an embedded stack go that nobody else needs."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self, model: type[M], call: Call) -> M:
        return _parsed(model, self._transport.send(call).checked())

    def _control(self, session: str, verb: str, **body: str | int | None) -> SessionView:
        content = _JSON.dump_json(_given(**body))
        answer = self._transport.send(Call("POST", session_path(session, verb), content=content))
        try:
            return _parsed(SessionView, answer.checked())
        except ControlRefused:
            view = self.session(session)
            if answer.repeated and view.status in _LEADS_TO[verb]:
                return view
            raise


def _address(url: str | None, token: str | None, held: ExitStack) -> tuple[str, str]:
    """Where the API is and what opens it: as given, else by the environment, else embedded.

    An embedded stack stays for as long as it is held.
    """
    settings = ClientSettings.from_env()
    url = url or settings.url
    if url is not None:
        return url, token or settings.token or ""
    from leadhand.embedded import ensure  # only those who need it pay for it

    connection = held.enter_context(ensure())
    return connection.url, token or connection.token


def _parsed(model: type[M], response: httpx2.Response) -> M:
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        raise AnswerUnreadable(str(response.url), response.status_code) from error


def _json(document: BaseModel | Mapping[str, Any]) -> bytes:
    if isinstance(document, BaseModel):
        return document.model_dump_json().encode()
    return _JSON.dump_json(dict(document))


def _given(**params: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in params.items() if value is not None}


def _next_look_s(waited_s: float, timeout_s: float | None) -> float:
    """When to look again: soon at first, then once a second, and never past the time-out."""
    pause_s = min(max(waited_s / 10, _SOONEST_LOOK_S), _LATEST_LOOK_S)
    return pause_s if timeout_s is None else min(pause_s, max(timeout_s - waited_s, 0.0))
