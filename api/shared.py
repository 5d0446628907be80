"""Serves the operations on named locks and shared values, and on artifacts."""

from __future__ import annotations

import base64

from flask import Response

from api.auth import current_caller, current_visitor
from api.requests import answer
from api.serving import Call, serves
from app import shared as app_shared
from app.core.artifacts import is_digest
from app.engine import Engine
from app.errors import InvalidDocument
from app.sessions.artifacts import list_artifacts, read_artifact
from app.shared import LockCall
from app.store.artifact_folder import Part
from leadhand.contract import shared, work
from leadhand.contract.operation import NoQuery, PageQuery
from leadhand.errors import ArtifactUnknown
from leadhand.models.views.shared import LockGrant, LockRelease, LockView, ValueHead, ValueView
from leadhand.models.views.step import ArtifactView, UploadView
from leadhand.models.views.view import Page


@serves(shared.LOCKS)
def locks(engine: Engine, call: Call, _: NoQuery) -> Page[LockView]:
    """Lists the named locks that the sessions of this session's tree share."""
    return Page[LockView](items=app_shared.list_locks(engine, call.session))


@serves(shared.ACQUIRE_LOCK)
def acquire(engine: Engine, call: Call, asked: shared.Acquire) -> Response:
    """Takes a named lock, or with `queue` joins its queue; does not block."""
    grant = app_shared.acquire_lock(
        engine,
        call.session,
        asked.name,
        _holder(asked.holder or ""),
        ttl_s=asked.ttl_s,
        queue=asked.queue,
    )
    return answer(grant, 200 if grant.state == "held" else 202)


@serves(shared.RENEW_LOCK)
def renew(engine: Engine, call: Call, asked: shared.Renew) -> LockGrant:
    """Extends the time for which the caller holds a named lock."""
    holder = _holder(asked.holder)
    return app_shared.renew_lock(
        engine, call.session, call.path["lock"], holder, fence=asked.fence, ttl_s=asked.ttl_s
    )


@serves(shared.RELEASE_LOCK)
def release(engine: Engine, call: Call, asked: shared.ReleaseQuery) -> LockRelease:
    """Releases a lock, or leaves its queue."""
    lock = call.path["lock"]
    released = app_shared.release_lock(engine, call.session, lock, _holder(asked.holder))
    return LockRelease(name=lock, released=released)


@serves(shared.VALUES)
def values(engine: Engine, call: Call, asked: shared.ValuesQuery) -> Page[ValueHead]:
    """Returns one page of the keys of values that the session's tree shares."""
    return app_shared.list_values(
        engine, call.session, prefix=asked.prefix, limit=asked.limit, cursor=asked.cursor
    )


@serves(shared.VALUE)
def value(engine: Engine, call: Call, _: NoQuery) -> ValueView:
    """Reads a value that the session's tree shares."""
    return app_shared.read_value(engine, call.session, call.path["key"])


@serves(shared.SET_VALUE)
def set_value(engine: Engine, call: Call, asked: shared.SetValue) -> ValueHead:
    """Stores a value that the tree shares; with `if_version` if it is unchanged."""
    return app_shared.set_value(
        engine,
        call.session,
        call.path["key"],
        asked.value,
        by=current_visitor(),
        if_version=asked.if_version,
        idempotency_key=call.key,
    )


@serves(shared.DELETE_VALUE)
def delete_value(engine: Engine, call: Call, asked: shared.DeleteValueQuery) -> None:
    """Deletes a shared value; with `if_version` only if it is unchanged."""
    app_shared.delete_value(
        engine,
        call.session,
        call.path["key"],
        by=current_visitor(),
        if_version=asked.if_version,
        idempotency_key=call.key,
    )


def _holder(holder: str) -> LockCall:
    return LockCall(by=current_visitor(), caller=current_caller(), holder=holder)


@serves(work.LIST)
def list_all(engine: Engine, call: Call, asked: PageQuery) -> Page[ArtifactView]:
    """Returns one page of the artifacts (stored files) of a session."""
    return list_artifacts(engine, call.session, limit=asked.limit, cursor=asked.cursor)


@serves(work.READ)
def read(engine: Engine, call: Call, asked: work.PartQuery) -> Response:
    """Returns a range of an artifact's bytes, as a download."""
    digest = call.path["digest"]
    piece = read_artifact(engine, call.session, digest, at=asked.at, limit=asked.limit)
    response = Response(piece.data)
    end = asked.at + len(piece.data)
    span = f"{asked.at}-{end - 1}" if piece.data else "*"
    response.headers["Content-Type"] = work.BYTES
    response.headers["Content-Range"] = f"bytes {span}/{piece.size}"
    response.headers["Content-Disposition"] = f'attachment; filename="{digest[:12]}"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    # It never changes, but its readers may: no shared cache keeps it.
    response.headers["Cache-Control"] = "private, no-store"
    return response


@serves(work.PUT)
def put(engine: Engine, call: Call, asked: work.PartBody) -> UploadView:
    """Stores the next part of an upload; reports if it is complete."""
    digest = call.path["digest"]
    engine.queries.ref(call.session)
    if not is_digest(digest):
        raise ArtifactUnknown(call.session, digest[:80])
    try:
        data = base64.b64decode(asked.data, validate=True)
    except ValueError:  # not base64, or not even ASCII
        raise InvalidDocument("data", asked.data[:20], "give base64") from None
    if asked.at + len(data) > asked.size:
        raise InvalidDocument("size", str(asked.size), "give the size of the whole artifact")
    part = Part(asked.at, asked.size, data)
    complete = engine.artifact_folder.put_part(digest, f"{call.session} {current_visitor()}", part)
    return UploadView(digest=digest, complete=complete)
