"""URL paths of operations, with checks of the ids and names in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from leadhand.contract.operation import Operation
from leadhand.errors import Refused, local_error
from leadhand.models.patterns import AGENT_SESSION, NAME, SHARED_NAME, form_of
from leadhand.models.problems import Kind
from leadhand.models.stacks import ACTIVE, WORKFLOW_ID


def path_of(operation: Operation[Any], *values: str) -> str:
    """Returns the path of an operation with the values of its parameters, in their order.

    Raises the error of the API for a value that no request can have, such as SessionUnknown.

    >>> from leadhand.contract import fleet, sessions
    >>> path_of(sessions.RESULT, "0000000a")
    '/v1/sessions/0000000a/result'
    >>> path_of(fleet.LIMIT, "model", "org/one")
    '/v1/limits/model/org%2Fone'
    """
    given = dict(zip(operation.parameters, values, strict=True))
    for name, kind in operation.parameters.items():
        check = _CHECKS.get("flow" if kind == "flow" else name)
        refusal = None if check is None else check(given[name], given)
        if refusal is not None:
            raise refusal
    return operation.path_with(lambda name, _: quote(given[name], safe=""))


def _session(value: str, _: Mapping[str, str]) -> Refused | None:
    if re.fullmatch(r"[0-9a-f]{8}", value):
        return None
    hint = "an id is 8 hexadecimal digits; `leadhand ls` lists the sessions"
    return local_error(Kind.SESSION_UNKNOWN, f"{value!r} is not a session id", hint=hint)


def _flow(value: str, _: Mapping[str, str]) -> Refused | None:
    if re.fullmatch(NAME, value):
        return None
    text = f"no flow is called {value!r}: a name is {form_of(NAME)}"
    return local_error(Kind.FLOW_UNKNOWN, text, hint="`leadhand flows` lists the flows")


def _token(value: str, _: Mapping[str, str]) -> Refused | None:
    if re.fullmatch(r"[0-9a-f]{12}", value):
        return None
    hint = "an id is 12 hexadecimal digits; `leadhand token list` lists the tokens"
    return local_error(Kind.TOKEN_UNKNOWN, f"{value[:40]!r} is not a token id", hint=hint)


def _digest(value: str, given: Mapping[str, str]) -> Refused | None:
    if re.fullmatch(r"[0-9a-f]{64}", value):
        return None
    text = f"{value[:80]!r} is not the digest of an artifact"
    hint = f"a digest has 64 hexadecimal digits; `leadhand artifacts {given['session']}` lists them"
    return local_error(Kind.ARTIFACT_UNKNOWN, text, hint=hint)


def _task(value: str, _: Mapping[str, str]) -> Refused | None:
    if value:
        return None
    return local_error(Kind.TASK_UNKNOWN, "the id of the task is empty", hint="give its id")


def _proposal(value: str, given: Mapping[str, str]) -> Refused | None:
    if value:
        return None
    hint = f"`leadhand plan proposals {given['session']}` lists them"
    return local_error(Kind.PLAN_REFUSED, "the id of the proposal is empty", hint=hint)


def _workflow(value: str, _: Mapping[str, str]) -> Refused | None:
    if value == ACTIVE or re.fullmatch(WORKFLOW_ID, value):
        return None
    hint = "an id is 8 hexadecimal digits; `leadhand stack ls` lists them"
    return local_error(Kind.WORKFLOW_UNKNOWN, f"Session not found: {value[:80]}", hint=hint)


def _of_form(field: str, pattern: str) -> Callable[[str, Mapping[str, str]], Refused | None]:
    def check(value: str, _: Mapping[str, str]) -> Refused | None:
        return invalid_form(field, value, pattern)

    return check


def invalid_form(field: str, value: str, pattern: str) -> Refused | None:
    """Returns the error for a value that does not have the form of its field; None if it has."""
    if re.fullmatch(pattern, value):
        return None
    text, hint = f"{field} is {value[:80]!r}", f"give {form_of(pattern)}"
    return local_error(Kind.INVALID, text, hint=hint, field=field)


#: By the name of the parameter; flows by the kind, as limits have names too.
_CHECKS: Mapping[str, Callable[[str, Mapping[str, str]], Refused | None]] = {
    "session": _session,
    "flow": _flow,
    "token": _token,
    "digest": _digest,
    "task": _task,
    "proposal": _proposal,
    "workflow": _workflow,
    "agent": _of_form("agent_session", AGENT_SESSION),
    "stack": _of_form("stack", NAME),
    "lock": _of_form("name", SHARED_NAME),
    "key": _of_form("key", SHARED_NAME),
}
