"""REST routes for what a tree of sessions shares: named locks and values."""

from __future__ import annotations

from typing import Annotated

from flask import Blueprint, Response
from pydantic import Field, JsonValue

from api import requests
from api.auth import current_caller, current_visitor
from api.requests import NoQuery
from api.responses import answer
from app.engine import Engine
from app.operations.named_locks import LockCall
from leadhand.models.patterns import SHARED_NAME
from leadhand.models.views import LockRelease, LockView, Page

Holder = Annotated[str, Field(min_length=1, max_length=64, pattern="^[!-~]+$")]
Seconds = Annotated[float, Field(ge=1, le=3600)]
Version = Annotated[int, Field(ge=0, le=2**53)]


class Acquire(requests.Body):
    """A lock that the caller wants."""

    #: The name of the lock in the tree of sessions.
    name: Annotated[str, Field(pattern=SHARED_NAME)]
    #: How long the lock is held, unless it is renewed.
    ttl_s: Seconds = 60.0
    #: Whether to wait in the line if another one has the lock: call again within 10 s, with the
    #: same holder, until the state is held.
    queue: bool = False
    #: The id of this holder, which is new for each grant; by default the API makes one.
    holder: Holder | None = None


class Renew(requests.Body):
    """The extension of a grant."""

    holder: Holder
    #: The number of the grant.
    fence: Annotated[int, Field(ge=1, le=2**53)]
    #: How long the lock is held from now on, unless it is renewed again.
    ttl_s: Seconds = 60.0


class ReleaseQuery(requests.Query):
    """The query of a release."""

    #: The id of the holder.
    holder: Holder


class ValuesQuery(requests.PageQuery):
    """A page of keys."""

    #: Only keys that begin with this.
    prefix: Annotated[str, Field(max_length=200)] = ""


class SetValue(requests.Body):
    """A value to store."""

    #: Any JSON, of at most 64 KiB.
    value: JsonValue
    #: Store it only if this is the version as it is now; 0 if there must be no value.
    if_version: Version | None = None


class DeleteValueQuery(requests.Query):
    """The query of a deletion."""

    #: Delete it only if this is the version as it is now.
    if_version: requests.Whole | None = None


class Locks:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_all(self, session: str) -> Response:
        """GET .../locks: list the named locks that the sessions of this session's tree share."""
        requests.query(NoQuery)
        return answer(Page[LockView](items=self._engine.shared.locks(session)))

    def acquire(self, session: str) -> Response:
        """POST .../locks: take a named lock, or with `queue` join its queue; does not block."""
        requests.query(NoQuery)
        asked = requests.body(Acquire)
        call = _call(asked.holder or "")
        grant = self._engine.locks.acquire(
            session, asked.name, call, ttl_s=asked.ttl_s, queue=asked.queue
        )
        return answer(grant, 200 if grant.state == "held" else 202)

    def renew(self, session: str, lock: str) -> Response:
        """PUT .../locks/NAME: extend the time for which the caller holds a named lock."""
        requests.query(NoQuery)
        asked = requests.body(Renew)
        call = _call(asked.holder)
        return answer(
            self._engine.locks.renew(session, lock, call, fence=asked.fence, ttl_s=asked.ttl_s)
        )

    def release(self, session: str, lock: str) -> Response:
        """DELETE .../locks/NAME: release a lock, or leave its queue."""
        asked = requests.query(ReleaseQuery)
        released = self._engine.locks.release(session, lock, _call(asked.holder))
        return answer(LockRelease(name=lock, released=released))


class Values:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_all(self, session: str) -> Response:
        """GET .../kv: return one page of the keys of values that the session's tree shares."""
        asked = requests.query(ValuesQuery)
        return answer(
            self._engine.shared.values(
                session, prefix=asked.prefix, limit=asked.limit, cursor=asked.cursor
            )
        )

    def one(self, session: str, key: str) -> Response:
        """GET .../kv/KEY: read a value that the session's tree shares."""
        requests.query(NoQuery)
        return answer(self._engine.shared.value(session, key))

    def put(self, session: str, key: str) -> Response:
        """PUT .../kv/KEY: store a value that the tree shares; with `if_version` if unchanged."""
        requests.query(NoQuery)
        asked = requests.body(SetValue)
        head = self._engine.values.set(
            session,
            key,
            asked.value,
            by=current_visitor(),
            if_version=asked.if_version,
            idempotency_key=requests.idempotency_key(),
        )
        return answer(head)

    def delete(self, session: str, key: str) -> Response:
        """DELETE .../kv/KEY: delete a shared value; with `if_version` only if it is unchanged."""
        asked = requests.query(DeleteValueQuery)
        self._engine.values.delete(
            session,
            key,
            by=current_visitor(),
            if_version=asked.if_version,
            idempotency_key=requests.idempotency_key(),
        )
        return Response(status=204)


def _call(holder: str) -> LockCall:
    return LockCall(by=current_visitor(), caller=current_caller(), holder=holder)


def locks_blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the routes of named locks."""
    locks = Locks(engine)
    routes = Blueprint("locks", __name__, url_prefix="/v1/sessions/<session>/locks")
    routes.add_url_rule("", "listed", locks.list_all)
    routes.add_url_rule("", "acquire", locks.acquire, methods=["POST"])
    routes.add_url_rule("/<path:lock>", "renew", locks.renew, methods=["PUT"])
    routes.add_url_rule("/<path:lock>", "release", locks.release, methods=["DELETE"])
    return routes


def values_blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the routes of shared values."""
    values = Values(engine)
    routes = Blueprint("kv", __name__, url_prefix="/v1/sessions/<session>/kv")
    routes.add_url_rule("", "listed", values.list_all)
    routes.add_url_rule("/<path:key>", "one", values.one)
    routes.add_url_rule("/<path:key>", "put", values.put, methods=["PUT"])
    routes.add_url_rule("/<path:key>", "delete", values.delete, methods=["DELETE"])
    return routes
