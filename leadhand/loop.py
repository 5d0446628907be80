"""The doer-checker loop under the names that scope gave its parts, each on top of the client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from leadhand import verdicts
from leadhand.attending import aloud, run_to_end
from leadhand.callables import CheckerLike, DoerLike, as_checkers, as_doer
from leadhand.client import Client
from leadhand.complaints import complaint
from leadhand.documents import LoopDocument
from leadhand.folders import working_folder
from leadhand.results import LoopResult
from leadhand.views import ENDED

__all__ = [
    "CONTRACT_CHUNK_SIZE",
    "PENDING_TASK",
    "TERMINAL_STATES",
    "LoopResult",
    "parse_verdict",
    "read_result",
    "run_loop",
    "send_contract",
    "spawn_and_run",
    "spawn_session",
    "wait_for_sessions",
]

#: The statuses in which nothing of a session runs; a stopped or failed one can be resumed.
TERMINAL_STATES = ENDED
#: The most characters that a task, and so a contract, may have.
CONTRACT_CHUNK_SIZE = 200_000
#: The task of a session that was created and is waiting for its contract.
PENDING_TASK = "(pending)"


def spawn_session(
    task: str,
    checker: CheckerLike | Sequence[CheckerLike],
    *,
    doer: DoerLike | None = None,
    agent: str | None = None,
    cwd: str | Path | None = None,
    client: Client | None = None,
    **limits: Any,
) -> str:
    """Start a loop and return its session's id at once.

    The keywords of `LoopDocument` (rule, max_iterations, model, timeout_s ...) may be given too.
    Raises ValueError for what cannot be run; nothing is created then.
    """
    document = loop_document(task, checker, doer=as_doer(doer, agent), cwd=cwd, **limits)
    with _Borrowed(client) as server:
        return server.submit(document).id


def send_contract(
    contract: str,
    checker: CheckerLike | Sequence[CheckerLike],
    *,
    client: Client | None = None,
    **settings: Any,
) -> str:
    """Start a loop whose task is a whole contract, and return its session's id.

    A contract travels in one piece with the session's creation, so a session without one never
    exists. Raises ValueError for one longer than CONTRACT_CHUNK_SIZE, and for PENDING_TASK.
    """
    if contract.strip() == PENDING_TASK:
        raise ValueError(f"contract is {PENDING_TASK!r}: write what is to be done")
    return spawn_session(contract, checker, client=client, **settings)


def run_loop(session: str, *, client: Client | None = None) -> LoopResult:
    """Wait until the loop of a session has ended and return how; the workers turn it."""
    with _Borrowed(client) as server:
        return LoopResult.from_view(server.wait(session))


def spawn_and_run(
    task: str,
    checker: CheckerLike | Sequence[CheckerLike],
    *,
    doer: DoerLike | None = None,
    agent: str | None = None,
    cwd: str | Path | None = None,
    client: Client | None = None,
    **limits: Any,
) -> LoopResult:
    """Start a loop, wait for its end and return how it ended; Ctrl-C stops it."""
    document = loop_document(task, checker, doer=as_doer(doer, agent), cwd=cwd, **limits)
    with _Borrowed(client) as server:
        return LoopResult.from_view(run_to_end(server, document, say=aloud))


def wait_for_sessions(
    sessions: Iterable[str], *, timeout: float | None = None, client: Client | None = None
) -> dict[str, str]:
    """Wait until all of the sessions have ended and return the status of each.

    `timeout` is for each of them, in seconds. Raises WaitTimedOut and SessionUnknown.
    """
    with _Borrowed(client) as server:
        return {session: server.wait(session, timeout).status for session in sessions}


def read_result(session: str, *, client: Client | None = None) -> str:
    """The text that the session's latest work came to; empty where there is none.

    Raises SessionStillRuns and SessionUnknown.
    """
    with _Borrowed(client) as server:
        return server.result(session).result_text


def parse_verdict(text: str) -> tuple[str, str]:
    """What a checker's words say about the work, and the feedback in them.

    >>> parse_verdict("Looks good. ACCEPT")
    ('accept', 'Looks good. ACCEPT')
    """
    verdict = verdicts.parse_verdict(text)
    return verdict.verdict, verdict.feedback


def loop_document(
    task: str,
    checker: CheckerLike | Sequence[CheckerLike],
    *,
    doer: object,
    cwd: str | Path | None,
    **limits: Any,
) -> LoopDocument:
    """The loop as the server takes it. Raises ValueError for what cannot be run."""
    try:
        return LoopDocument.model_validate(
            {
                **limits,
                "task": task,
                "checkers": as_checkers(checker),
                "doer": doer,
                "cwd": working_folder(cwd),
            }
        )
    except ValidationError as error:
        raise ValueError(complaint(error)) from None


class _Borrowed:
    """A client that is closed after use, unless it is the caller's own."""

    def __init__(self, client: Client | None) -> None:
        self._own = Client() if client is None else None
        self._client = client or self._own

    def __enter__(self) -> Client:
        assert self._client is not None
        return self._client

    def __exit__(self, *_error: object) -> None:
        if self._own is not None:
            self._own.close()
