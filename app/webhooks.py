"""Delivers webhooks for sessions that ended, failed, or wait for people."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue

from app.core.addresses import SessionRef, iso
from app.core.records import Delivery, HookTask
from app.engine import Engine
from app.security.egress import Destination, destination, is_public, is_trusted, refusal
from leadhand.errors import SessionUnknown
from leadhand.models.documents import Webhook
from leadhand.models.verdicts import Reason
from leadhand.models.views.session import SessionView

#: Total time-out of a try, from name resolution to the head of the response.
TOTAL_S = 5.0
#: Maximum bytes of a response that are read; only its status matters.
CAP = 64 * 1024
log = logging.getLogger(__name__)
#: Maximum tries of a delivery.
TRIES = 8
#: How long a claimed delivery is reserved: longer than a try takes.
HOLD_MS = round(4 * TOTAL_S * 1000)
_LONGEST_WAIT_MS = 3_600_000
#: Fields of a session in a webhook: identity and counters, no content.
_SESSION_FIELDS = {
    "id", "kind", "name", "label", "parent", "root", "place", "created_at", "ended_at", "counters",
}  # fmt: skip
Word = Literal["arrived", "later", "given_up", "superseded", "early", "gone"]


class Posted(NamedTuple):
    """Whether a receiver accepted a webhook, and its response or the error."""

    arrived: bool
    why: str


class _NotPosted(Exception):
    """The try failed; the text is for the session's record."""


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def remaining(self) -> float:
        """The remaining seconds. Raises TimeoutError if there are none."""
        remaining = self._until - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        return remaining


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    hosts: Iterable[str] = (),
    total_s: float = TOTAL_S,
    context: ssl.SSLContext | None = None,
) -> Posted:
    """Send one HTTP POST without redirects or proxies; returns whether it arrived, and why not.

    It takes at most `total_s`, and is refused if the egress rules forbid the URL.
    """
    to = destination(url)
    deadline = _Deadline(total_s)
    refused = refusal(to, hosts)
    if refused is not None:
        return Posted(arrived=False, why=refused)
    try:
        addresses = _addresses(to, deadline, private=is_trusted(to, hosts))
        with _connect(to, addresses, deadline, context) as connection:
            connection.settimeout(deadline.remaining())
            connection.sendall(_request(to, body, headers))
            status = _status(connection, deadline)
    except TimeoutError:
        return Posted(arrived=False, why=f"no response within {total_s:g} s")
    except (_NotPosted, OSError) as error:
        return Posted(arrived=False, why=str(error) or type(error).__name__)
    return Posted(arrived=200 <= status < 300, why=f"answered {status}")


def _addresses(to: Destination, deadline: _Deadline, *, private: bool) -> Sequence[str]:
    """Resolve the host once. Raises _NotPosted if any IP is not public."""
    found = _resolve(to, deadline)
    if not private and not all(map(is_public, found)):
        # The private IP is not revealed to the user.
        raise _NotPosted(f"{to.host} is not, or not only, a public address")
    return found


def _resolve(to: Destination, deadline: _Deadline) -> list[str]:
    """Resolve in a thread, because the resolver's own time-out may be much longer."""
    came: list[list[str] | OSError] = []

    def resolve() -> None:
        try:
            found = socket.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
            came.append(list(dict.fromkeys(str(entry[4][0]) for entry in found)))
        except (OSError, UnicodeError) as error:
            came.append(OSError(str(error)))

    asking = threading.Thread(target=resolve, name="resolve", daemon=True)
    asking.start()
    asking.join(deadline.remaining())
    if not came:
        raise TimeoutError
    if isinstance(came[0], OSError):
        raise _NotPosted(f"{to.host} cannot be resolved") from came[0]
    return came[0]


def _connect(
    to: Destination, addresses: Sequence[str], deadline: _Deadline, context: ssl.SSLContext | None
) -> socket.socket:
    """Connect to the first IP that accepts; the certificate must match the host."""
    plain = _plain(to, addresses, deadline)
    if to.scheme == "http":
        return plain
    try:
        plain.settimeout(deadline.remaining())
        return (context or _verifying()).wrap_socket(plain, server_hostname=to.host)
    except BaseException:
        plain.close()
        raise


def _plain(to: Destination, addresses: Sequence[str], deadline: _Deadline) -> socket.socket:
    failure: OSError = OSError("no address")
    for address in addresses:
        try:
            return socket.create_connection((address, to.port), timeout=deadline.remaining())
        except TimeoutError:
            raise
        except OSError as error:
            failure = error
    raise _NotPosted(f"{to.authority} cannot be reached: {failure.strerror or failure}")


@lru_cache(maxsize=1)
def _verifying() -> ssl.SSLContext:
    return ssl.create_default_context()


def _request(to: Destination, body: bytes, headers: Mapping[str, str]) -> bytes:
    fields = {
        "Host": to.authority,
        **headers,
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    lines = [f"POST {to.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _status(connection: socket.socket, deadline: _Deadline) -> int:
    """The status of the final response; its body is not read."""
    answer = b""
    while True:
        while b"\r\n\r\n" not in answer:
            if len(answer) >= CAP:
                raise _NotPosted(f"the response head is longer than {CAP} bytes")
            connection.settimeout(deadline.remaining())
            more = connection.recv(min(8192, CAP - len(answer)))
            if not more:
                raise _NotPosted("the connection was closed before a response arrived")
            answer += more
        head, _, answer = answer.partition(b"\r\n\r\n")
        status = _status_of(head)
        if status >= 200:
            return status


def _status_of(head: bytes) -> int:
    """Parses the status line of a response.

    >>> _status_of(b"HTTP/1.1 204 No Content")
    204
    """
    version, _, rest = head.partition(b" ")
    code = rest[:3]
    if not version.startswith(b"HTTP/1.") or not code.isdigit() or len(code) < 3:
        raise _NotPosted("the response is not HTTP")
    return int(code)


class Payload(BaseModel):
    """The payload of a webhook."""

    model_config = ConfigDict(frozen=True)

    event: str
    delivery: str
    at: str
    #: The session at the time of the event.
    session: dict[str, JsonValue]


class Webhooks:
    """Delivers due webhooks; a delivery is claimed by one process for each try."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store

    def due(self, limit: int) -> list[str]:
        """Return the due deliveries, the longest overdue first."""
        return self._store.due_hooks(limit)

    def deliver(self, line: str) -> Word:
        """Send a webhook delivery once, schedule a retry if it fails, and return what happened."""
        session, root, delivery = line.split("|", 2)
        ref = SessionRef(session, root)
        mine: dict[str, JsonValue] = {
            "delivery": delivery,
            "nonce": secrets.token_hex(8),
            "most": TRIES,
        }
        taken = self._store.run("webhook_claim", ref, "", {**mine, "hold_ms": HOLD_MS})
        if taken.delivery is None:
            return "early" if taken.word == "early" else "gone"
        hook = self._webhook(ref)
        if taken.word == "spent" or hook is None:
            posted = Posted(arrived=False, why="the trying processes ended before they reported")
        else:
            posted = self._post(ref, hook, delivery, taken.delivery)
        return self._settle(ref, hook, mine, taken.delivery, posted)

    def _webhook(self, ref: SessionRef) -> Webhook | None:
        text = self._store.values(ref, "session", ["webhook"]).get("webhook")
        return Webhook.model_validate_json(text) if text else None

    def _post(self, ref: SessionRef, hook: Webhook, delivery: str, happened: Delivery) -> Posted:
        try:
            view = self._engine.queries.session(ref.id)
        except SessionUnknown:
            return Posted(arrived=False, why="the session was deleted")
        body = body_of(view, delivery, happened)
        headers = headers_of(hook, delivery, happened, body, at_s=self._store.now_ms() // 1000)
        return post(hook.url, body, headers, hosts=self._engine.settings.webhook_hosts)

    def _settle(
        self,
        ref: SessionRef,
        hook: Webhook | None,
        mine: dict[str, JsonValue],
        happened: Delivery,
        posted: Posted,
    ) -> Word:
        result: dict[str, JsonValue] = {
            "arrived": posted.arrived,
            "why": posted.why,
            "host": destination(hook.url).authority if hook else "",
            "wait_ms": wait_ms(happened.tries),
        }
        word = self._store.run("webhook_settle", ref, "", {**mine, **result}).word
        fields = {"session": ref.id, "delivery": mine["delivery"], "tries": happened.tries}
        log.info("webhook tried", extra=fields | {"came_to": word, "why": posted.why})
        return _WORDS.get(word, "superseded")


_WORDS: dict[str, Word] = {"arrived": "arrived", "later": "later", "given_up": "given_up"}


def wait_ms(tries: int) -> int:
    """Returns the back-off in ms after a number of tries: from a second to an hour.

    >>> [wait_ms(tries) // 1000 for tries in range(1, 8)]
    [1, 4, 16, 64, 256, 1024, 3600]
    """
    return int(min(1000 * 4 ** (tries - 1), _LONGEST_WAIT_MS))


def body_of(view: SessionView, delivery: str, happened: Delivery) -> bytes:
    """Builds the JSON body of a webhook about a session, as bytes."""
    then: dict[str, JsonValue] = {
        **view.model_dump(mode="json", include=_SESSION_FIELDS),
        "status": happened.status,
        "reason": _codes(happened.reason),
    }
    payload = Payload(event=happened.event, delivery=delivery, at=iso(happened.at), session=then)
    about = {} if happened.task is None else {"task": _task(happened.task)}
    return json.dumps(payload.model_dump(mode="json") | about).encode()


def headers_of(
    hook: Webhook, delivery: str, happened: Delivery, body: bytes, *, at_s: int
) -> dict[str, str]:
    """Builds the HTTP headers of a webhook, with its signature."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"Leadhand/{version('leadhand')}",
        "Leadhand-Event": happened.event,
        "Leadhand-Delivery": delivery,
    }
    if hook.secret is not None:
        headers["Leadhand-Signature"] = signature(hook.secret, body, at_s=at_s)
    return headers


def _task(task: HookTask) -> JsonValue:
    fields: dict[str, JsonValue] = task.model_dump(exclude={"reason"}, exclude_none=True)
    return fields | ({} if task.reason is None else {"reason": _codes(task.reason)})


def _codes(reason: Reason | None) -> JsonValue:
    """The chain of reasons without their texts, which may contain secrets."""
    if reason is None:
        return None
    return {"code": reason.code, "at": reason.at, "beneath": _codes(reason.beneath)}


def signature(secret: str, body: bytes, *, at_s: int) -> str:
    """Computes the HMAC signature of a webhook's body and time.

    >>> signature("a secret of the receiver's", b"{}", at_s=1700000000)[:18]
    't=1700000000,v1=87'
    """
    signed = str(at_s).encode() + b"." + body
    return f"t={at_s},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"
