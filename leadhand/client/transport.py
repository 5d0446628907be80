"""Sends calls over HTTP, with retries where that is safe: blocking, or in an event loop."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from threading import Timer
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import httpx2

from leadhand.contract.calls import Answer, Call, Reach, Script, checked, refusal
from leadhand.errors import ApiAway, Malformed, Refused, StoreUnknown, TokenInvalid
from leadhand.local.services import SILENT_S, describe_silence, read_run
from leadhand.local.user_state import state_folder
from leadhand.models.folder_settings import FOLDER_HEADER
from leadhand.settings import environment

T = TypeVar("T")
#: Seconds without even a keep-alive comment after which a stream's connection counts as dead.
STREAM_SILENCE_S = 50.0
#: Network errors that are retried: the request or its response was lost.
TRANSIENT = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError)
#: Seconds between the first two tries, and at most.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
#: Streams hold their connections, so the number of connections must not limit other calls.
UNLIMITED = httpx2.Limits(max_connections=None, max_keepalive_connections=20)


class Pause(NamedTuple):
    """A step of a script that waits."""

    seconds: float


def drive(script: Script[T], act: Callable[[Any], object]) -> T:
    """Carry out a script's steps by `act`, and its pauses; the script gets what a step raises."""
    steps = iter(script)
    try:
        step = next(steps)
        while True:
            try:
                done: object = None
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    done = act(step)
            except BaseException as error:  # noqa: BLE001 - the script decides
                step = steps.throw(error)
            else:
                step = steps.send(done)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


async def drive_async(script: Script[T], act: Callable[[Any], Awaitable[object]]) -> T:
    """Carry out a script's steps as `drive` does, in an event loop."""
    steps = iter(script)
    try:
        step = next(steps)
        while True:
            try:
                done: object = None
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    done = await act(step)
            except BaseException as error:  # noqa: BLE001 - the script decides
                step = steps.throw(error)
            else:
                step = steps.send(done)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


def headers_of(reach: Reach) -> dict[str, str]:
    """Return the headers of every request: the bearer token and the caller's folder, if any."""
    if not _is_sendable(reach.token):
        hint = "copy it again; a token has letters, digits and '.', '_' and '-' only"
        raise TokenInvalid("the token has other characters", hint=hint)
    found = {"Authorization": f"Bearer {reach.token}"} if reach.token else {}
    if reach.here.folder is not None:
        found[FOLDER_HEADER] = quote(os.fsencode(reach.here.folder))
    return found


def trusts_env(reach: Reach) -> bool:
    """Whether requests use the proxy set in the environment: not for an API on this host."""
    return not _is_local(reach.url)


def tls_of(reach: Reach) -> ssl.SSLContext | bool:
    """Return how to verify TLS: True, or an empty SSL context for an http API on this host.

    Reading the certificates of all authorities would take longer than most calls.
    """
    is_plain = reach.url.startswith("http://") and not trusts_env(reach)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else True


def stream_timeout(reach: Reach) -> httpx2.Timeout:
    """Return the timeouts of an event stream: 50 s without data for reads, else `timeout_s`."""
    return httpx2.Timeout(reach.timeout_s, read=STREAM_SILENCE_S)


class Silence:
    """Tells the user once that the API takes long to respond, and again after it responded."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._is_told = False

    @contextmanager
    def watched(self, call: Call) -> Iterator[None]:
        """Watch the time that a call takes, if the user is told of retries at all."""
        if self._reach.say is None:
            yield
            return
        timer = Timer(SILENT_S + call.waits_s, self._tell, (call.waits_s,))
        timer.daemon = True
        timer.start()
        try:
            yield
            self._is_told = self._is_told and not timer.is_alive()
        finally:
            timer.cancel()

    def _tell(self, waits_s: float) -> None:
        if self._is_told or self._reach.say is None:
            return
        self._is_told = True
        text = f"the API at {self._reach.url} has not responded for {SILENT_S + waits_s:g} s"
        if self._reach.here.is_embedded:
            run = read_run(state_folder(environment()))
            text = f"{describe_silence(run)}; `leadhand restart` starts them again"
        self._reach.say(f"{text}; still waiting")


class Patience:
    """Computes the pauses between retries, exponential ones, until a time limit."""

    def __init__(self, limit_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self.renew()

    def renew(self) -> None:
        """Reset the deadline and the pause, after a success."""
        self._since = self._clock()
        self._next_s = FIRST_PAUSE_S
        self.tried = False

    def next_pause_s(self, asked_s: float | None = None) -> float | None:
        """Return the seconds until the next try, doubled each time; None past the deadline."""
        left_s = self._limit_s - (self._clock() - self._since)
        pause_s = max(self._next_s, asked_s or 0.0)
        if pause_s > left_s:
            return None
        self._next_s = min(self._next_s * 2, LONGEST_PAUSE_S)
        self.tried = True
        return pause_s


class Outage:
    """Reports an outage once, when a second try in a row has failed."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._failures = 0

    def add_failure(self, why: ApiAway | Refused) -> None:
        """Count a failed try; the second one is reported to the user, by a call of `say`."""
        self._failures += 1
        if self._failures == 2 and self._reach.say is not None:
            self._reach.say(f"{why}; retrying for {self._reach.patience_s:g} s")


def build_request(
    http: httpx2.Client | httpx2.AsyncClient, call: Call, *, timeout: httpx2.Timeout | None = None
) -> httpx2.Request:
    """Builds the httpx request of a Call, with a JSON content type if it has content.

    Raises RequestInvalid for text that cannot be sent.
    """
    headers = dict(call.headers)
    for name, text in headers.items():
        if not _is_sendable(text):
            hint = "give printable ASCII characters"
            raise Malformed(f"the {name} cannot be sent", hint=hint, field=name)
    if call.content is not None:
        headers["Content-Type"] = "application/json"
    try:
        return http.build_request(
            call.method,
            call.path,
            params=dict(call.params) or None,
            headers=headers,
            content=call.content,
            timeout=http.timeout if timeout is None else timeout,
        )
    except UnicodeError:
        hint = "write it in UTF-8"
        raise Malformed("an argument is no valid text", hint=hint) from None


def away(reach: Reach, error: httpx2.TransportError) -> ApiAway:
    """Returns the ApiAway exception for a network error; does not raise it."""
    return ApiAway(reach.url, str(error) or type(error).__name__)


def retry_after(response: httpx2.Response) -> float | None:
    """Returns the seconds in a response's Retry-After header; None if absent or no whole number."""
    asked = response.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdecimal() else None


def is_transient(response: httpx2.Response) -> bool:
    """Whether a response is a 503 that a retry may resolve, without an operator's action."""
    if response.status_code != httpx2.codes.SERVICE_UNAVAILABLE:
        return False
    return StoreUnknown.kind.uri.encode() not in response.content


def tries(
    reach: Reach, silence: Silence, call: Call
) -> Generator[Call | Pause, httpx2.Response, Answer]:
    """Yields a call until it is answered, even by an error, and the pauses between. Raises ApiAway.

    A step returns its response, or raises what httpx2 raises.
    """
    patience, outage = Patience(reach.patience_s), Outage(reach)
    with silence.watched(call):
        while True:
            result = yield from _one_try(reach, call)
            if isinstance(result, ApiAway):
                outage.add_failure(result)
                pause_s = patience.next_pause_s()
                if pause_s is None:
                    raise result
            elif not is_transient(result):
                return Answer(result, repeated=patience.tried)
            else:
                outage.add_failure(refusal(result))
                pause_s = patience.next_pause_s(retry_after(result))
                if pause_s is None:
                    return Answer(result, repeated=patience.tried)
            yield Pause(pause_s)


def _one_try(
    reach: Reach, call: Call
) -> Generator[Call, httpx2.Response, httpx2.Response | ApiAway]:
    """Try once; return an error that may be retried, raise one that may not."""
    try:
        return (yield call)
    except TRANSIENT as error:
        return away(reach, error)
    except httpx2.TransportError as error:
        raise away(reach, error) from error


def _options(reach: Reach) -> dict[str, Any]:
    """The arguments of both kinds of httpx2's client."""
    return {
        "base_url": reach.url,
        "headers": headers_of(reach),
        "timeout": reach.timeout_s,
        "limits": UNLIMITED,
        "trust_env": trusts_env(reach),
        "verify": tls_of(reach),
    }


class Transport:
    """The connections to one API. Threads may share them."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._silence = Silence(reach)
        self._http = httpx2.Client(**_options(reach))

    def send(self, call: Call) -> Answer:
        """Send a call, with retries; return its response, even an error. Raises ApiAway."""
        return drive(tries(self.reach, self._silence, call), self._try)

    def _try(self, call: Call) -> httpx2.Response:
        return self._http.send(build_request(self._http, call))

    @contextmanager
    def stream(self, call: Call) -> Iterator[httpx2.Response]:
        """Send a call and yield its open streamed response. Raises ApiAway, Refused; no retries."""
        try:
            request = build_request(self._http, call, timeout=stream_timeout(self.reach))
            response = self._http.send(request, stream=True)
            try:
                if response.is_error:
                    response.read()
                yield checked(response)
            finally:
                response.close()
        except httpx2.TransportError as error:
            raise away(self.reach, error) from error

    def close(self) -> None:
        """Close the HTTP connections."""
        self._http.close()


class AsyncTransport:
    """The connections to one API, in one event loop."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._silence = Silence(reach)
        self._http = httpx2.AsyncClient(**_options(reach))

    async def send(self, call: Call) -> Answer:
        """Send a call, with retries; return its response, even an error. Raises ApiAway."""
        return await drive_async(tries(self.reach, self._silence, call), self._try)

    async def _try(self, call: Call) -> httpx2.Response:
        return await self._http.send(build_request(self._http, call))

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[httpx2.Response]:
        """Send a call and yield its open streamed response. Raises ApiAway, Refused; no retries."""
        try:
            request = build_request(self._http, call, timeout=stream_timeout(self.reach))
            response = await self._http.send(request, stream=True)
            try:
                if response.is_error:
                    await response.aread()
                yield checked(response)
            finally:
                await response.aclose()
        except httpx2.TransportError as error:
            raise away(self.reach, error) from error

    async def close(self) -> None:
        """Close the HTTP connections."""
        await self._http.aclose()


def _is_sendable(text: str) -> bool:
    """Whether a header may have this text: a line break would begin another header."""
    return text.isascii() and (not text or text.isprintable())


def _is_local(url: str) -> bool:
    host = httpx2.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
