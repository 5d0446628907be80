"""Delivers webhooks for sessions that ended, failed, or wait for people."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
from importlib.metadata import version
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from app.domain.clock import iso
from app.domain.ids import SessionRef
from app.domain.records import Delivery, HookTask
from app.engine import Engine
from app.security.egress import destination
from app.webhooks.http import TOTAL_S, Posted, post
from leadhand.errors import SessionUnknown
from leadhand.models.documents import Webhook
from leadhand.models.reasons import Reason
from leadhand.models.views.session import SessionView

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
