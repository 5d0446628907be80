"""URL paths of operations, with checks of the ids and names in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
        refusal = None if check is None else check(given[name], given.get("session", ""))
        if refusal is not None:
            raise refusal
    return operation.path_with(lambda name, _: quote(given[name], safe=""))


def invalid_form(field: str, value: str, pattern: str) -> Refused | None:
    """Returns the error for a value that does not have the form of its field; None if it has."""
    if re.fullmatch(pattern, value):
        return None
    text, hint = f"{field} is {value[:80]!r}", f"give {form_of(pattern)}"
    return local_error(Kind.INVALID, text, hint=hint, field=field)


@dataclass(frozen=True)
class _Id:
    """The form of an id, and the error for another one, in which `{value}` and `{session}` are."""

    kind: Kind
    pattern: str
    text: str
    hint: str
    #: Characters of the value in the error.
    shown: int | None = None

    def __call__(self, value: str, session: str) -> Refused | None:
        if re.fullmatch(self.pattern, value):
            return None
        text = self.text.format(value=value[: self.shown])
        return local_error(self.kind, text, hint=self.hint.format(session=session))


@dataclass(frozen=True)
class _Field:
    """The form of a name that is a field of a request as well."""

    field: str
    pattern: str

    def __call__(self, value: str, _: str) -> Refused | None:
        return invalid_form(self.field, value, self.pattern)


#: By the name of the parameter; flows by the kind, as limits have names too.
_CHECKS: Mapping[str, Callable[[str, str], Refused | None]] = {
    "session": _Id(
        Kind.SESSION_UNKNOWN, r"[0-9a-f]{8}", "{value!r} is not a session id",
        "an id is 8 hexadecimal digits; `leadhand ls` lists the sessions",
    ),
    "flow": _Id(
        Kind.FLOW_UNKNOWN, NAME, f"no flow is called {{value!r}}: a name is {form_of(NAME)}",
        "`leadhand flows` lists the flows",
    ),
    "token": _Id(
        Kind.TOKEN_UNKNOWN, r"[0-9a-f]{12}", "{value!r} is not a token id",
        "an id is 12 hexadecimal digits; `leadhand token list` lists the tokens", 40,
    ),
    "digest": _Id(
        Kind.ARTIFACT_UNKNOWN, r"[0-9a-f]{64}", "{value!r} is not the digest of an artifact",
        "a digest has 64 hexadecimal digits; `leadhand artifacts {session}` lists them", 80,
    ),
    "task": _Id(Kind.TASK_UNKNOWN, r"(?s).+", "the id of the task is empty", "give its id"),
    "proposal": _Id(
        Kind.PLAN_REFUSED, r"(?s).+", "the id of the proposal is empty",
        "`leadhand plan proposals {session}` lists them",
    ),
    "workflow": _Id(
        Kind.WORKFLOW_UNKNOWN, rf"{ACTIVE}|{WORKFLOW_ID}", "Session not found: {value}",
        "an id is 8 hexadecimal digits; `leadhand stack ls` lists them", 80,
    ),
    "agent": _Field("agent_session", AGENT_SESSION),
    "stack": _Field("stack", NAME),
    "lock": _Field("name", SHARED_NAME),
    "key": _Field("key", SHARED_NAME),
}  # fmt: skip
