"""One call of the API over HTTP: its request, its response, and the errors for its failures."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from threading import Timer
from typing import NamedTuple
from urllib.parse import quote

import httpx2
from pydantic import ValidationError

from leadhand.client.here import Here
from leadhand.errors import AnswerUnreadable, ApiAway, Refused, error_for, local_error
from leadhand.local.running import SILENT_S, describe_silence, read_run
from leadhand.local.user_state import state_folder
from leadhand.models.definition_folder import FOLDER_HEADER
from leadhand.models.problems import MEDIA_TYPE, Kind, Problem
from leadhand.settings import environment

#: Seconds without even a keep-alive comment after which a stream's connection counts as dead.
STREAM_SILENCE_S = 50.0
#: Network errors that are retried: the request or its response was lost.
TRANSIENT = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError)
#: Seconds between the first two tries, and at most.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

#: Streams hold their connections, so the number of connections must not limit other calls.
UNLIMITED = httpx2.Limits(max_connections=None, max_keepalive_connections=20)

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

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of every request: the bearer token and the caller's folder, if any."""
        if not _is_sendable(self.token):
            hint = "copy it again; a token has letters, digits and '.', '_' and '-' only"
            raise local_error(Kind.UNAUTHENTICATED, "the token has other characters", hint=hint)
        found = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if self.here.folder is not None:
            found[FOLDER_HEADER] = quote(os.fsencode(self.here.folder))
        return found

    @property
    def trusts_env(self) -> bool:
        """Whether requests use the proxy set in the environment: not for an API on this host."""
        return not _is_local(self.url)

    @property
    def tls(self) -> ssl.SSLContext | bool:
        """Return how to verify TLS: True, or an empty SSL context for an http API on this host.

        Reading the certificates of all authorities would take longer than most calls.
        """
        is_plain = self.url.startswith("http://") and not self.trusts_env
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else True

    @property
    def stream_timeout(self) -> httpx2.Timeout:
        """Return the timeouts of an event stream: 50 s without data for reads, else `timeout_s`."""
        return httpx2.Timeout(self.timeout_s, read=STREAM_SILENCE_S)


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
            raise local_error(Kind.MALFORMED, f"the {name} cannot be sent", hint=hint, field=name)
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
        raise local_error(Kind.MALFORMED, "an argument is no valid text", hint=hint) from None


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
    return Kind.STORE_UNKNOWN.uri.encode() not in response.content


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


def _is_sendable(text: str) -> bool:
    """Whether a header may have this text: a line break would begin another header."""
    return text.isascii() and (not text or text.isprintable())


def _is_local(url: str) -> bool:
    host = httpx2.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
