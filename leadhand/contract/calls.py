"""One declaration of an operation for both clients: a method that builds what is to be sent."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)

from pydantic import ValidationError

from leadhand.contract.here import Here
from leadhand.contract.operation import Operation
from leadhand.errors import AnswerUnreadable, Refused, error_for
from leadhand.models.problems import MEDIA_TYPE, Problem

if TYPE_CHECKING:  # the server has no use for it
    import httpx2

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Param = str | int | Sequence[str]


class Call(NamedTuple):
    """One request; it must be safe to repeat."""

    method: str
    path: str
    params: Mapping[str, Param] = {}
    headers: Mapping[str, str] = {}
    content: bytes | None = None
    #: Seconds that the API may take by itself, because the call waits for something.
    waits_s: float = 0.0


class Answer(NamedTuple):
    """A response, and whether the request was repeated and may have been executed before."""

    response: httpx2.Response
    repeated: bool

    def checked(self) -> httpx2.Response:
        """Return the response if it is a success. Raises Refused, AnswerUnreadable."""
        return checked(self.response)


def checked(response: httpx2.Response) -> httpx2.Response:
    """Returns the response if it is a success. Raises Refused, AnswerUnreadable."""
    if response.is_error:
        raise refusal(response)
    if not response.is_success:
        raise AnswerUnreadable(str(response.url), response.status_code)
    return response


def refusal(response: httpx2.Response) -> Refused:
    """Returns the exception for an error response, by its problem details or else its status."""
    if response.headers.get("Content-Type", "").startswith(MEDIA_TYPE):
        try:
            problem = Problem.model_validate_json(response.content)
            return error_for(problem, response.status_code)
        except ValidationError as error:
            raise AnswerUnreadable(str(response.url), response.status_code) from error
    return error_for(
        Problem(title=response.reason_phrase, status=response.status_code),
        response.status_code,
    )


class Script(Protocol[T_co]):
    """Steps that something else carries out, each with its result; then the script's own result."""

    def __iter__(self) -> Generator[Any, Any, T_co]:
        """Return the steps."""


#: The script of an operation of several calls: it yields calls, of which it gets the answers, and
#: pauses.
Steps: TypeAlias = Generator[Any, Any, T]


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """The script of one call, with the parser of its answer, which raises Refused for an error."""

    call: Call
    read: Callable[[Answer], T]

    def __iter__(self) -> Generator[Call, Answer, T]:
        return self.read((yield self.call))


class Reach(NamedTuple):
    """The address of an API, with its token, timeouts and retry time."""

    url: str
    token: str
    timeout_s: float = 30.0
    patience_s: float = 30.0
    #: Called with a message when retries begin.
    say: Callable[[str], None] | None = None
    #: The environment of the caller, of which new sessions get a part.
    here: Here = Here()


class Noun:
    """The operations of a noun. Without a client, an operation returns its script."""

    _reach: Reach

    @property
    def url(self) -> str:
        """Return the URL of the API."""
        return self._reach.url

    @property
    def here(self) -> Here:
        """The caller's environment (variables, Python, folder), of which sessions get a part."""
        return self._reach.here

    @property
    def token(self) -> str:
        """Return the token that the client sends to the API."""
        return self._reach.token


class Blocking:
    """Runs operations and returns their results."""

    _nouns: Noun

    def _run(self, script: Script[T]) -> T:
        raise NotImplementedError


class InEventLoop:
    """Runs operations as coroutines."""

    _nouns: Noun

    async def _run(self, script: Script[T]) -> T:
        raise NotImplementedError


class Op(Generic[P, T]):
    """Makes an operation of a method that returns its script: a method of each kind of client.

    The signature, the annotations and the docstring are those of the method that is decorated,
    with the result of the script as the result.
    """

    #: The operation that it only carries out, if it is no more than that (`calls`).
    operation: Operation[Any] | None = None

    def __init__(self, build: Callable[Concatenate[Any, P], Script[T]]) -> None:
        # `Ask[SessionView]` builds what returns a `SessionView`.
        result = build.__annotations__["return"]
        build.__annotations__["return"] = re.sub(r"^(?:Ask|Steps)\[(.*)\]$", r"\1", result)
        self._build = build

    @overload
    def __get__(self, client: Blocking, owner: object = None) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, client: InEventLoop, owner: object = None
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: Noun, owner: object = None) -> Callable[P, Script[T]]: ...
    @overload
    def __get__(
        self, client: None, owner: type[Blocking]
    ) -> Callable[Concatenate[Blocking, P], T]: ...
    @overload
    def __get__(
        self, client: None, owner: type[InEventLoop]
    ) -> Callable[Concatenate[InEventLoop, P], Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(
        self, client: None, owner: type[Noun]
    ) -> Callable[Concatenate[Noun, P], Script[T]]: ...

    def __get__(self, client: object, owner: Any = None) -> Any:
        method = self._method_of(type(client) if client is not None else owner)
        return method if client is None else MethodType(method, client)

    def _method_of(self, owner: type) -> Callable[..., Any]:
        if issubclass(owner, Blocking):
            return self._blocking
        return self._in_event_loop if issubclass(owner, InEventLoop) else self._build

    @functools.cached_property
    def _blocking(self) -> Callable[..., T]:
        @functools.wraps(self._build)
        def method(client: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return client._run(self._build(client._nouns, *args, **kwargs))

        return method

    @functools.cached_property
    def _in_event_loop(self) -> Callable[..., Coroutine[Any, Any, T]]:
        @functools.wraps(self._build)
        async def method(client: InEventLoop, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await client._run(self._build(client._nouns, *args, **kwargs))

        return method
