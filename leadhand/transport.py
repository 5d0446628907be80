"""Carries requests to the API, and tries again where that is safe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
_PASSING = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError)


class Call(NamedTuple):
    """One request; whoever makes it sees to it that it can be repeated."""

    method: str
    path: str
    params: Mapping[str, str | int] = {}
    headers: Mapping[str, str] = {}
    content: bytes | None = None


class Answer(NamedTuple):
    """What came back, and whether the request may have been carried out before it."""

    response: httpx2.Response
    repeated: bool

    def checked(self) -> httpx2.Response:
        """The response. Raises Refused where the API said no, AnswerUnreadable if it is not one."""
        return _checked(self.response)


class Transport:
    """One API's connections."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout_s: float,
        patience_s: float,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.url = url
        self.patience_s = patience_s
        self._say = say
        self._http = httpx2.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout_s,
            # A proxy of the environment is not asked for what is on this machine.
            trust_env=not _is_local(url),
        )
        self._stream_timeout = httpx2.Timeout(timeout_s, read=STREAM_SILENCE_S)

    def send(self, call: Call) -> Answer:
        """The API's answer, whatever it says. Raises ApiAway once patience is out."""
        patience = Patience(self.patience_s)
        outage = Outage(self)
        while True:
            came = self._attempt(call)
            if isinstance(came, ApiAway):
                outage.goes_on(came)
                if not patience.pause():
                    raise came
            elif not _is_passing(came):
                return Answer(came, repeated=patience.tried)
            else:
                outage.goes_on(_refusal(came))
                if not patience.pause(retry_after(came)):
                    return Answer(came, repeated=patience.tried)

    @contextmanager
    def stream(self, call: Call) -> Iterator[httpx2.Response]:
        """An answer that goes on and on. Raises as send does, and never tries again itself."""
        try:
            request = self._request(call, timeout=self._stream_timeout)
            response = self._http.send(request, stream=True)
            try:
                if response.is_error:
                    response.read()
                yield _checked(response)
            finally:
                response.close()
        except httpx2.TransportError as error:
            raise ApiAway(self.url, _why(error)) from error

    def say(self, text: str) -> None:
        """Tell whoever waits, where somebody listens."""
        if self._say is not None:
            self._say(text)

    def close(self) -> None:
        self._http.close()

    def _attempt(self, call: Call) -> httpx2.Response | ApiAway:
        """One try; what is given back may be tried again, what is raised may not."""
        try:
            return self._http.send(self._request(call))
        except _PASSING as error:
            return ApiAway(self.url, _why(error))
        except httpx2.TransportError as error:
            raise ApiAway(self.url, _why(error)) from error

    def _request(self, call: Call, *, timeout: httpx2.Timeout | None = None) -> httpx2.Request:
        headers = dict(call.headers)
        if call.content is not None:
            headers["Content-Type"] = "application/json"
        return self._http.build_request(
            call.method,
            call.path,
            params=dict(call.params) or None,
            headers=headers,
            content=call.content,
            timeout=self._http.timeout if timeout is None else timeout,
        )


class Outage:
    """A time in which every try fails: the second one is told, once, for a blip is no news."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._failures = 0

    def goes_on(self, why: ApiAway | Refused) -> None:
        """One more try has failed."""
        self._failures += 1
        if self._failures == 2:
            self._transport.say(f"{why}; trying again for {self._transport.patience_s:g} s")


def retry_after(response: httpx2.Response) -> float | None:
    """How many seconds the answer asks us to wait."""
    asked = response.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdecimal() else None


def _is_passing(response: httpx2.Response) -> bool:
    return response.status_code == httpx2.codes.SERVICE_UNAVAILABLE


def _checked(response: httpx2.Response) -> httpx2.Response:
    if response.is_error:
        raise _refusal(response)
    if not response.is_success:
        raise AnswerUnreadable(str(response.url), response.status_code)
    return response


def _refusal(response: httpx2.Response) -> Refused:
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


def _why(error: httpx2.TransportError) -> str:
    return str(error) or type(error).__name__


def _is_local(url: str) -> bool:
    host = httpx2.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
