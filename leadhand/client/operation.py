"""One declaration of an operation for both clients: a method that builds what is to be sent."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, overload

from leadhand.client.calls import Answer, Call, Reach
from leadhand.client.driving import Pause, Script, drive, drive_async
from leadhand.client.here import Here
from leadhand.client.transport import AsyncTransport, Transport
from leadhand.client.waiting import TroubleReport

P = ParamSpec("P")
T = TypeVar("T")

#: The script of an operation of several calls: the result of a call is its answer.
Steps: TypeAlias = Generator[Call | Pause, Any, T]


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """The script of one call, with the parser of its answer, which raises Refused for an error."""

    call: Call
    read: Callable[[Answer], T]

    def __iter__(self) -> Generator[Call, Answer, T]:
        return self.read((yield self.call))


class Operations:
    """What all operations know of the client. Without a client, an operation returns its script."""

    _reach: Reach
    #: What keeps the sessions waiting that are waited for; it speaks by `say`.
    troubles: TroubleReport

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

    _operations: Operations
    _transport: Transport


class InEventLoop:
    """Runs operations as coroutines."""

    _operations: Operations
    _transport: AsyncTransport


class Op(Generic[P, T]):
    """Makes an operation of a method that returns its script: a method of each kind of client.

    The signature, the annotations and the docstring are those of the method that is decorated,
    with the result of the script as the result.
    """

    def __init__(self, build: Callable[Concatenate[Any, P], Script[T]]) -> None:
        # `Ask[SessionView]` builds what returns a `SessionView`.
        _, _, result = build.__annotations__["return"].partition("[")
        build.__annotations__["return"] = result[:-1]
        self._build = build

    @overload
    def __get__(self, client: Blocking, owner: object = None) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, client: InEventLoop, owner: object = None
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: Operations, owner: object = None) -> Callable[P, Script[T]]: ...
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
        self, client: None, owner: type[Operations]
    ) -> Callable[Concatenate[Operations, P], Script[T]]: ...

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
            script = self._build(client._operations, *args, **kwargs)
            return drive(script, client._transport.send)

        return method

    @functools.cached_property
    def _in_event_loop(self) -> Callable[..., Coroutine[Any, Any, T]]:
        @functools.wraps(self._build)
        async def method(client: InEventLoop, /, *args: P.args, **kwargs: P.kwargs) -> T:
            script = self._build(client._operations, *args, **kwargs)
            return await drive_async(script, client._transport.send)

        return method
