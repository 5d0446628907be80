"""Serves the operations on artifacts: list, read in parts, and upload in parts by an attempt."""

from __future__ import annotations

import base64

from flask import Response

from api.auth import current_visitor
from api.serving import Call, serves
from app.artifacts.folder import Part
from app.domain.artifacts import is_digest
from app.engine import Engine
from app.errors import InvalidDocument
from leadhand.contract import artifacts
from leadhand.contract.bodies import PageQuery
from leadhand.errors import ArtifactUnknown
from leadhand.models.views.artifact import ArtifactView, UploadView
from leadhand.models.views.view import Page


@serves(artifacts.LIST)
def list_all(engine: Engine, call: Call, asked: PageQuery) -> Page[ArtifactView]:
    """Returns one page of the artifacts (stored files) of a session."""
    return engine.artifacts.listed(call.session, limit=asked.limit, cursor=asked.cursor)


@serves(artifacts.READ)
def read(engine: Engine, call: Call, asked: artifacts.PartQuery) -> Response:
    """Returns a range of an artifact's bytes, as a download."""
    digest = call.path["digest"]
    piece = engine.artifacts.read(call.session, digest, at=asked.at, limit=asked.limit)
    response = Response(piece.data)
    end = asked.at + len(piece.data)
    span = f"{asked.at}-{end - 1}" if piece.data else "*"
    response.headers["Content-Type"] = artifacts.BYTES
    response.headers["Content-Range"] = f"bytes {span}/{piece.size}"
    response.headers["Content-Disposition"] = f'attachment; filename="{digest[:12]}"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    # It never changes, but its readers may: no shared cache keeps it.
    response.headers["Cache-Control"] = "private, no-store"
    return response


@serves(artifacts.PUT)
def put(engine: Engine, call: Call, asked: artifacts.PartBody) -> UploadView:
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
    complete = engine.uploads.put_part(digest, f"{call.session} {current_visitor()}", part)
    return UploadView(digest=digest, complete=complete)
