"""The requests of operations, with checks of the ids in them, and parsers of responses (pure)."""

from __future__ import annotations

import functools
import inspect
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter, ValidationError

from leadhand.contract.calls import Answer, Ask, Call, Op, Param
from leadhand.contract.operation import JSON, Operation
from leadhand.errors import (
    AnswerUnreadable,
    ArtifactUnknown,
    FlowUnknown,
    PlanRefused,
    Refused,
    RequestInvalid,
    SessionUnknown,
    TaskUnknown,
    TokenUnknown,
    WorkflowUnknown,
)
from leadhand.models.etags import etag
from leadhand.models.patterns import AGENT_SESSION, NAME, SHARED_NAME, form_of
from leadhand.models.stacks import ACTIVE, WORKFLOW_ID
from leadhand.models.views.session import SessionView
from leadhand.models.views.view import Page

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
_JSON: TypeAdapter[Any] = TypeAdapter(Any)
_KEY = "Idempotency-Key"


def calls(
    operation: Operation[Any],
) -> Callable[[Callable[Concatenate[Any, P], T]], Op[P, T]]:
    """Makes a plain operation of both clients, of a method without a body.

    Its first arguments are the values of the path, in order. Of the others `seen` and
    `idempotency_key` are headers, and the rest are the fields of the body, or else of the query;
    those that are None are left out. Its result is the model of the response, the items of a page
    (`list`), the text (`str`), or None.
    """

    def operation_of(method: Callable[Concatenate[Any, P], T]) -> Op[P, T]:
        signature, count = inspect.signature(method), len(operation.parameters)
        read = _reader(operation, signature.return_annotation)

        @functools.wraps(method)
        def build(client: object, /, *args: P.args, **kwargs: P.kwargs) -> Ask[T]:
            bound = signature.bind(client, *args, **kwargs)
            bound.apply_defaults()
            _, *values = bound.arguments.items()
            fields = dict(values[count:])
            headers = if_match(fields.pop("seen", None))
            key = fields.pop("idempotency_key", None)
            if _KEY in operation.headers:
                headers |= idempotent(key)
            path = [value for _, value in values[:count]]
            if operation.body is None:
                return Ask(request(operation, *path, headers=headers, **fields), read)
            return Ask(request(operation, *path, headers=headers, body=given(**fields)), read)

        method_of_clients = Op(build)
        method_of_clients.operation = operation
        return method_of_clients

    return operation_of


def _reader(operation: Operation[Any], result: str) -> Callable[[Answer], Any]:
    """The parser of an operation's response, by the annotation of its method."""
    if result == "None":
        return _no_result
    if result == "str":
        return lambda answer: answer.checked().text
    model: Any = next(one.body[JSON] for one in operation.responses if JSON in one.body)
    if result.startswith("list["):
        return lambda answer: parsed(model, answer).items
    return lambda answer: parsed(model, answer)


def request(
    operation: Operation[Any],
    *path: str,
    body: Any = None,
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    waits_s: float = 0.0,
    **params: Param | None,
) -> Call:
    """Builds the request of an operation: with the values of its path, in order, and of its query.

    Parameters of the query that are None are left out. The body becomes JSON, by default an empty
    object where the operation has one; `content` is one that is JSON already.
    """
    if content is None and operation.body is not None:
        content = dumped({} if body is None else body)
    where = path_of(operation, *path)
    return Call(operation.method, where, given(**params), headers or {}, content, waits_s)


def given(**fields: T | None) -> dict[str, T]:
    """Returns the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def dumped(body: Any) -> bytes:
    """Returns data, in which there may be models, as JSON."""
    return _JSON.dump_json(body)


def strictly_dumped(body: Any) -> bytes:
    """Returns data of the user's as JSON. Raises ValueError, TypeError for what JSON has not."""
    return json.dumps(body, allow_nan=False).encode()


def idempotent(key: str | None = None) -> dict[str, str]:
    """Returns the Idempotency-Key header of a request, by default with a new key."""
    return {_KEY: key or uuid.uuid4().hex}


def if_match(seen: SessionView | None) -> dict[str, str]:
    """Returns the header by which a call is refused if the session is not as it was seen."""
    return {} if seen is None else {"If-Match": etag(seen.status, seen.updated_at)}


def reads(model: type[M], call: Call) -> Ask[M]:
    """Asks for a model."""
    return Ask(call, lambda answer: parsed(model, answer))


def items(page: type[Page[T]], call: Call) -> Ask[list[T]]:
    """Asks for the items of a page that has all."""
    return Ask(call, lambda answer: parsed(page, answer).items)


def reads_text(call: Call) -> Ask[str]:
    """Asks for a text."""
    return Ask(call, lambda answer: answer.checked().text)


def succeeds(call: Call) -> Ask[None]:
    """Asks for a success."""
    return Ask(call, _no_result)


def _no_result(answer: Answer) -> None:
    answer.checked()


def parsed(model: type[M], answer: Answer) -> M:
    """Parses an answer's JSON as the given model. Raises Refused, or AnswerUnreadable."""
    response = answer.checked()
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        raise AnswerUnreadable(str(response.url), response.status_code) from error


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
    return RequestInvalid(text, hint=hint, field=field)


@dataclass(frozen=True)
class _Id:
    """The form of an id, and the error for another one, in which `{value}` and `{session}` are."""

    error: type[Refused]
    pattern: str
    text: str
    hint: str
    #: Characters of the value in the error.
    shown: int | None = None

    def __call__(self, value: str, session: str) -> Refused | None:
        if re.fullmatch(self.pattern, value):
            return None
        text = self.text.format(value=value[: self.shown])
        return self.error.of(text, hint=self.hint.format(session=session))


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
        SessionUnknown, r"[0-9a-f]{8}", "{value!r} is not a session id",
        "an id is 8 hexadecimal digits; `leadhand ls` lists the sessions",
    ),
    "flow": _Id(
        FlowUnknown, NAME, f"no flow is called {{value!r}}: a name is {form_of(NAME)}",
        "`leadhand flows` lists the flows",
    ),
    "token": _Id(
        TokenUnknown, r"[0-9a-f]{12}", "{value!r} is not a token id",
        "an id is 12 hexadecimal digits; `leadhand token list` lists the tokens", 40,
    ),
    "digest": _Id(
        ArtifactUnknown, r"[0-9a-f]{64}", "{value!r} is not the digest of an artifact",
        "a digest has 64 hexadecimal digits; `leadhand artifacts {session}` lists them", 80,
    ),
    "task": _Id(TaskUnknown, r"(?s).+", "the id of the task is empty", "give its id"),
    "proposal": _Id(
        PlanRefused, r"(?s).+", "the id of the proposal is empty",
        "`leadhand plan proposals {session}` lists them",
    ),
    "workflow": _Id(
        WorkflowUnknown, rf"{ACTIVE}|{WORKFLOW_ID}", "Session not found: {value}",
        "an id is 8 hexadecimal digits; `leadhand stack ls` lists them", 80,
    ),
    "agent": _Field("agent_session", AGENT_SESSION),
    "stack": _Field("stack", NAME),
    "lock": _Field("name", SHARED_NAME),
    "key": _Field("key", SHARED_NAME),
}  # fmt: skip
