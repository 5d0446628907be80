"""Webhooks: tells those outside that a session ended, failed, or waits for people."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
from importlib.metadata import version
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from app.addresses import destination
from app.engine import Engine
from app.errors import SessionUnknown
from app.keys import SessionRef
from app.pictures import iso
from app.posting import TOTAL_S, Posted, post
from app.reasons import Reason
from app.records import Delivery
from app.views import SessionView
from leadhand.documents import Webhook

log = logging.getLogger(__name__)

#: How often a delivery is tried before it is given up.
TRIES = 8
#: How long a delivery is its taker's: longer than a try, so that nobody else tries meanwhile.
HOLD_MS = round(4 * TOTAL_S * 1000)
_LONGEST_WAIT_MS = 3_600_000

#: What of a session is told: what it is and how far it came, nothing of what it works on.
_TOLD = {
    "id", "kind", "name", "label", "parent", "root", "place", "created_at", "ended_at", "counters",
}  # fmt: skip

Word = Literal["arrived", "later", "given_up", "superseded", "early", "gone"]


class Told(BaseModel):
    """The body of a webhook."""

    model_config = ConfigDict(frozen=True)

    event: str
    delivery: str
    at: str
    #: As it was then.
    session: dict[str, JsonValue]


class Webhooks:
    """Delivers what is due; who takes a delivery is its only deliverer until that try is over."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store

    def due(self, limit: int) -> list[str]:
        """Deliveries whose time has come, the longest overdue first."""
        return self._store.due_hooks(limit)

    def deliver(self, line: str) -> Word:
        """Try to deliver one of them, once; what came of it decides when it is due again."""
        session, root, delivery = line.split("|", 2)
        ref = SessionRef(session, root)
        mine: dict[str, JsonValue] = {
            "delivery": delivery,
            "nonce": secrets.token_hex(8),
            "most": TRIES,
        }
        taken = self._store.run("take_hook", ref, "", {**mine, "hold_ms": HOLD_MS})
        if taken.delivery is None:
            return "early" if taken.word == "early" else "gone"
        hook = self._webhook(ref)
        if taken.word == "spent" or hook is None:
            posted = Posted(arrived=False, why="those who tried ended before they could tell")
        else:
            posted = self._posted(ref, hook, delivery, taken.delivery)
        return self._settled(ref, hook, mine, taken.delivery, posted)

    def _webhook(self, ref: SessionRef) -> Webhook | None:
        text = self._store.values(ref, "session", ["webhook"]).get("webhook")
        return Webhook.model_validate_json(text) if text else None

    def _posted(self, ref: SessionRef, hook: Webhook, delivery: str, happened: Delivery) -> Posted:
        try:
            view = self._engine.session(ref.id)
        except SessionUnknown:
            return Posted(arrived=False, why="the session is gone")
        body = body_of(view, delivery, happened)
        headers = headers_of(hook, delivery, happened, body, at_s=self._store.now_ms() // 1000)
        return post(hook.url, body, headers, hosts=self._engine.settings.webhook_hosts)

    def _settled(
        self,
        ref: SessionRef,
        hook: Webhook | None,
        mine: dict[str, JsonValue],
        happened: Delivery,
        posted: Posted,
    ) -> Word:
        told: dict[str, JsonValue] = {
            "arrived": posted.arrived,
            "why": posted.why,
            "host": destination(hook.url).authority if hook else "",
            "wait_ms": wait_ms(happened.tries),
        }
        word = self._store.run("settle_hook", ref, "", {**mine, **told}).word
        fields = {"session": ref.id, "delivery": mine["delivery"], "tries": happened.tries}
        log.info("webhook tried", extra=fields | {"came_to": word, "why": posted.why})
        return _WORDS.get(word, "superseded")


_WORDS: dict[str, Word] = {"arrived": "arrived", "later": "later", "given_up": "given_up"}


def wait_ms(tries: int) -> int:
    """How long to wait after so many tries: from a second to an hour.

    >>> [wait_ms(tries) // 1000 for tries in range(1, 8)]
    [1, 4, 16, 64, 256, 1024, 3600]
    """
    return int(min(1000 * 4 ** (tries - 1), _LONGEST_WAIT_MS))


def body_of(view: SessionView, delivery: str, happened: Delivery) -> bytes:
    """What a receiver reads."""
    then: dict[str, JsonValue] = {
        **view.model_dump(mode="json", include=_TOLD),
        "status": happened.status,
        "reason": _codes(happened.reason),
    }
    told = Told(event=happened.event, delivery=delivery, at=iso(happened.at), session=then)
    return json.dumps(told.model_dump(mode="json")).encode()


def headers_of(
    hook: Webhook, delivery: str, happened: Delivery, body: bytes, *, at_s: int
) -> dict[str, str]:
    """What a receiver goes by: what it is told, of what, and by whom."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"Leadhand/{version('leadhand')}",
        "Leadhand-Event": happened.event,
        "Leadhand-Delivery": delivery,
    }
    if hook.secret is not None:
        headers["Leadhand-Signature"] = signature(hook.secret, body, at_s=at_s)
    return headers


def signature(secret: str, body: bytes, *, at_s: int) -> str:
    """What proves that we sent this body at that time.

    >>> signature("a secret of the receiver's", b"{}", at_s=1700000000)[:18]
    't=1700000000,v1=87'
    """
    signed = str(at_s).encode() + b"." + body
    return f"t={at_s},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def _codes(reason: Reason | None) -> JsonValue:
    """The chain of reasons without their texts, which may hold anything."""
    if reason is None:
        return None
    return {"code": reason.code.value, "at": reason.at, "beneath": _codes(reason.beneath)}
