"""Functions that run one doer-checker loop, with the names of the `scope` library."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from leadhand.callables import CheckerLike, DoerLike, as_checkers, as_doer
from leadhand.client.client import Client, borrowed
from leadhand.contract import generate_contract
from leadhand.models.documents import LoopDocument
from leadhand.models.validation_messages import first_error
from leadhand.models.views.session import ENDED
from leadhand.results import LoopResult
from leadhand.run import print_message, run_to_end, working_folder
from leadhand.state import Poll, load_exit_reason, poll, save_exit_reason

__all__ = [
    "CONTRACT_CHUNK_SIZE",
    "PENDING_TASK",
    "TERMINAL_STATES",
    "LoopResult",
    "Poll",
    "generate_contract",
    "load_exit_reason",
    "parse_verdict",
    "poll",
    "read_result",
    "run_loop",
    "save_exit_reason",
    "send_contract",
    "spawn_and_run",
    "spawn_session",
    "wait_for_sessions",
]

#: The statuses of an ended session; a stopped or failed one can be resumed.
TERMINAL_STATES = ENDED
#: The most characters of a task or contract.
CONTRACT_CHUNK_SIZE = 200_000
#: The placeholder for a task, which is not accepted as a contract.
PENDING_TASK = "(pending)"
_VERDICT_WORD = re.compile(r"\b(?:terminate|accept|retry)\b", re.IGNORECASE)
#: What the functions accept beside the fields of a loop.
_PARAMETERS = ("checker", "agent", "client")


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

    Also accepts the fields of `LoopDocument` (rule, max_iterations, model, timeout_s,
    checker_timeout_s, doer_attempts, conversation ...). Raises ValueError for an invalid loop and
    creates no session then.
    """
    document = loop_document(task, checker, doer=as_doer(doer, agent), cwd=cwd, **limits)
    with borrowed(client) as server:
        return server.submit(document).id


def send_contract(
    contract: str,
    checker: CheckerLike | Sequence[CheckerLike],
    *,
    client: Client | None = None,
    **settings: Any,
) -> str:
    """Start a loop whose task is a contract (one text with all that its doer needs); return its id.

    The contract is part of the request that creates the session, so no session exists without one.
    Raises ValueError for a contract longer than CONTRACT_CHUNK_SIZE, and for PENDING_TASK.
    """
    if contract.strip() == PENDING_TASK:
        raise ValueError(f"contract is {PENDING_TASK!r}: write the task")
    return spawn_session(contract, checker, client=client, **settings)


def run_loop(session: str, *, client: Client | None = None) -> LoopResult:
    """Wait until the loop of a session, which already runs, has ended, and return its result."""
    with borrowed(client) as server:
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
    """Start a loop, wait for its end and return its result; Ctrl-C stops it."""
    document = loop_document(task, checker, doer=as_doer(doer, agent), cwd=cwd, **limits)
    with borrowed(client) as server:
        return LoopResult.from_view(run_to_end(server, document, say=print_message))


def wait_for_sessions(
    sessions: Iterable[str], *, timeout: float | None = None, client: Client | None = None
) -> dict[str, str]:
    """Wait until all of the sessions have ended and return the status of each.

    `timeout` is for each of them, in seconds. Raises WaitTimedOut and SessionUnknown.
    """
    with borrowed(client) as server:
        return {session: server.wait(session, timeout).status for session in sessions}


def read_result(session: str, *, client: Client | None = None) -> str:
    """Returns the result text of the session's latest work, or ''.

    Raises SessionStillRuns and SessionUnknown.
    """
    with borrowed(client) as server:
        return server.result(session).result_text


def parse_verdict(text: str) -> tuple[str, str]:
    """Returns the last verdict word in a text (`retry` without one), and the text as feedback.

    This is the function of the `scope` library. Leadhand itself reads answers strictly.

    >>> parse_verdict("Looks good. ACCEPT")
    ('accept', 'Looks good. ACCEPT')
    """
    text = text.strip()
    for line in reversed(text.splitlines()):
        found = {word.lower() for word in _VERDICT_WORD.findall(line)}
        if found:
            return next(word for word in ("terminate", "accept", "retry") if word in found), text
    return "retry", text


def loop_document(
    task: str,
    checker: CheckerLike | Sequence[CheckerLike],
    *,
    doer: object,
    cwd: str | Path | None,
    **limits: Any,
) -> LoopDocument:
    """Builds the document of a loop. Raises ValueError if it is invalid."""
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
        raise ValueError(first_error(error, LoopDocument, also=_PARAMETERS)) from None
