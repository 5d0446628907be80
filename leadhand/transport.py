"""Carries requests to the API, and tries again where that is safe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from typing import NamedTuple

import httpx2
from pydantic import ValidationError

from leadhand.errors import AnswerUnreadable, ApiAway, Refused, refused
from leadhand.patience import Patience
from leadhand.problems import MEDIA_TYPE, Problem

#: So long without even a keep-alive comment: the connection is dead, though nobody said so.
STREAM_SILENCE_S = 50.0
#: What may be tried again: the request did not arrive, or its answer did not.
PASSING = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError)


#: A stream holds its connection; however many there are, a call must not wait for one to end.
UNLIMITED = httpx2.Limits(max_connections=None, max_keepalive_connections=20)

Param = str | int | Sequence[str]


class Call(NamedTuple):
    """One request; whoever makes it sees to it that it can be repeated."""

    method: str
    path: str
    params: Mapping[str, Param] = {}
    headers: Mapping[str, str] = {}
    content: bytes | None = None


class Answer(NamedTuple):
    """What came back, and whether the request may have been carried out before it."""

    response: httpx2.Response
    repeated: bool

    def checked(self) -> httpx2.Response:
        """The response. Raises Refused where the API said no, AnswerUnreadable if it is not one."""
        return checked(self.response)


class Reach(NamedTuple):
    """Where an API is, what opens it, and how long to bear with it."""

    url: str
    token: str
    timeout_s: float = 30.0
    patience_s: float = 30.0
    #: Hears of it when every try fails for a while.
    say: Callable[[str], None] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What goes with each request."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    @property
    def trusts_env(self) -> bool:
        """A proxy of the environment is not asked for what is on this machine."""
        return not _is_local(self.url)

    @property
    def stream_timeout(self) -> httpx2.Timeout:
        """How long a stream may be silent."""
        return httpx2.Timeout(self.timeout_s, read=STREAM_SILENCE_S)


class Transport:
    """One API's connections."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._http = httpx2.Client(
            base_url=reach.url,
            headers=reach.headers,
            timeout=reach.timeout_s,
            limits=UNLIMITED,
            trust_env=reach.trusts_env,
        )

    def send(self, call: Call) -> Answer:
        """The API's answer, whatever it says. Raises ApiAway once patience is out."""
        patience = Patience(self.reach.patience_s)
        outage = Outage(self.reach)
        while True:
            came = self._attempt(call)
            if isinstance(came, ApiAway):
                outage.goes_on(came)
                if not patience.pause():
                    raise came
            elif not is_passing(came):
                return Answer(came, repeated=patience.tried)
            else:
                outage.goes_on(refusal(came))
                if not patience.pause(retry_after(came)):
                    return Answer(came, repeated=patience.tried)

    @contextmanager
    def stream(self, call: Call) -> Iterator[httpx2.Response]:
        """An answer that goes on and on. Raises as send does, and never tries again itself."""
        try:
            request = built(self._http, call, timeout=self.reach.stream_timeout)
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
        self._http.close()

    def _attempt(self, call: Call) -> httpx2.Response | ApiAway:
        """One try; what is given back may be tried again, what is raised may not."""
        try:
            return self._http.send(built(self._http, call))
        except PASSING as error:
            return away(self.reach, error)
        except httpx2.TransportError as error:
            raise away(self.reach, error) from error


class Outage:
    """A time in which every try fails: the second one is told, once, for a blip is no news."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._failures = 0

    def goes_on(self, why: ApiAway | Refused) -> None:
        """One more try has failed."""
        self._failures += 1
        if self._failures == 2 and self._reach.say is not None:
            self._reach.say(f"{why}; trying again for {self._reach.patience_s:g} s")


def built(
    http: httpx2.Client | httpx2.AsyncClient, call: Call, *, timeout: httpx2.Timeout | None = None
) -> httpx2.Request:
    """The request of a call."""
    headers = dict(call.headers)
    if call.content is not None:
        headers["Content-Type"] = "application/json"
    return http.build_request(
        call.method,
        call.path,
        params=dict(call.params) or None,
        headers=headers,
        content=call.content,
        timeout=http.timeout if timeout is None else timeout,
    )


def away(reach: Reach, error: httpx2.TransportError) -> ApiAway:
    """The API does not answer, for this reason."""
    return ApiAway(reach.url, str(error) or type(error).__name__)


def retry_after(response: httpx2.Response) -> float | None:
    """How many seconds the answer asks us to wait."""
    asked = response.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdecimal() else None


def is_passing(response: httpx2.Response) -> bool:
    """Whether the same call may be answered otherwise in a while."""
    return response.status_code == httpx2.codes.SERVICE_UNAVAILABLE


def checked(response: httpx2.Response) -> httpx2.Response:
    """The response. Raises Refused where the API said no, AnswerUnreadable if it is not one."""
    if response.is_error:
        raise refusal(response)
    if not response.is_success:
        raise AnswerUnreadable(str(response.url), response.status_code)
    return response


def refusal(response: httpx2.Response) -> Refused:
    """What the API said no with; a proxy in between may have said it in its own words."""
    if response.headers.get("Content-Type", "").startswith(MEDIA_TYPE):
        try:
            problem = Problem.model_validate_json(response.content)
            return refused(problem, response.status_code)
        except ValidationError as error:
            raise AnswerUnreadable(str(response.url), response.status_code) from error
    return refused(
        Problem(title=response.reason_phrase, status=response.status_code),
        response.status_code,
    )


def _is_local(url: str) -> bool:
    host = httpx2.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
