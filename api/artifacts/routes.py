"""REST routes for artifacts: list, read in parts, and upload in parts by an attempt."""

from __future__ import annotations

import base64
from typing import Annotated

from flask import Blueprint, Response
from pydantic import Field

from api import requests
from api.auth import current_visitor
from api.requests import NoQuery, PageQuery
from api.responses import answer
from app.artifacts.errors import ArtifactUnknown
from app.artifacts.folder import Part
from app.domain.artifacts import PART_BYTES, is_digest
from app.engine import Engine
from app.errors import InvalidDocument
from leadhand.models.views import UploadView

BYTES = "application/octet-stream"


class PartQuery(requests.Query):
    """Which bytes of an artifact to read."""

    #: The first byte.
    at: requests.Whole = 0
    #: Maximum number of bytes; `Content-Range` says which they are, of how many.
    limit: Annotated[int, Field(ge=1, le=PART_BYTES), requests.DIGITS] = PART_BYTES


class PartBody(requests.Body):
    """The next part of an artifact."""

    #: Its first byte, and the size of the whole artifact.
    at: Annotated[int, Field(ge=0, le=2**53)]
    size: Annotated[int, Field(ge=1, le=2**53)]
    #: Its bytes in base64: at most 2 MiB of them.
    data: Annotated[str, Field(max_length=PART_BYTES * 4 // 3 + 4)]


class Artifacts:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_all(self, session: str) -> Response:
        """GET .../artifacts: return one page of the artifacts (stored files) of a session."""
        asked = requests.query(PageQuery)
        found = self._engine.artifacts.listed(session, limit=asked.limit, cursor=asked.cursor)
        return answer(found)

    def read(self, session: str, digest: str) -> Response:
        """GET .../artifacts/DIGEST: return a range of an artifact's bytes, as a download."""
        asked = requests.query(PartQuery)
        piece = self._engine.artifacts.read(session, digest, at=asked.at, limit=asked.limit)
        response = Response(piece.data)
        end = asked.at + len(piece.data)
        span = f"{asked.at}-{end - 1}" if piece.data else "*"
        response.headers["Content-Type"] = BYTES
        response.headers["Content-Range"] = f"bytes {span}/{piece.size}"
        response.headers["Content-Disposition"] = f'attachment; filename="{digest[:12]}"'
        response.headers["X-Content-Type-Options"] = "nosniff"
        # It never changes, but its readers may: no shared cache keeps it.
        response.headers["Cache-Control"] = "private, no-store"
        return response

    def put(self, session: str, digest: str) -> Response:
        """PUT .../artifacts/DIGEST: store the next part of an upload; report if it is complete."""
        requests.query(NoQuery)
        asked = requests.body(PartBody)
        self._engine.queries.ref(session)
        if not is_digest(digest):
            raise ArtifactUnknown(session, digest[:80])
        try:
            data = base64.b64decode(asked.data, validate=True)
        except ValueError:  # not base64, or not even ASCII
            raise InvalidDocument("data", asked.data[:20], "give base64") from None
        if asked.at + len(data) > asked.size:
            raise InvalidDocument("size", str(asked.size), "give the size of the whole artifact")
        part = Part(asked.at, asked.size, data)
        complete = self._engine.uploads.put_part(digest, f"{session} {current_visitor()}", part)
        return answer(UploadView(digest=digest, complete=complete))


def blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the REST routes of artifacts."""
    artifacts = Artifacts(engine)
    routes = Blueprint("artifacts", __name__, url_prefix="/v1/sessions/<session:session>/artifacts")
    routes.add_url_rule("", "listed", artifacts.list_all)
    routes.add_url_rule("/<digest>", "read", artifacts.read)
    routes.add_url_rule("/<digest>", "put", artifacts.put, methods=["PUT"])
    return routes
