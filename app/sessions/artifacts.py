"""Stores what workers upload, lists and reads it, and removes what no session refers to."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from app.context import Context
from app.core.addresses import SessionRef, by_number, iso
from app.core.artifacts import is_digest
from app.core.program import Program
from app.history.values import written_name
from app.sessions.listing import encode_cursor, number_of
from leadhand.errors import ArtifactUnknown, ProgramNewer
from leadhand.models.views.step import ArtifactView
from leadhand.models.views.view import Page

log = logging.getLogger(__name__)
#: The file in the folder of artifacts that holds the id of its store.
MARK = ".store"


def sweep_artifacts(engine: Context, now_s: float | None = None) -> list[str]:
    """Delete artifacts that no session refers to and that are a day old; returns their digests.

    A folder with the mark of another store is not swept, and nothing is removed while Redis
    holds another store than expected. Raises StoreUnknown.
    """
    ours = _identity(engine)
    if not ours or not _is_ours(engine, ours):
        return []
    return engine.artifact_folder.sweep(partial(_referenced, engine), now_s=now_s)


def _referenced(engine: Context, digests: Collection[str]) -> set[str]:
    found = engine.store.artifacts().referenced(digests)
    engine.guard.check()  # Redis may have lost its data meanwhile
    return found


def _identity(engine: Context) -> str:
    engine.guard.check()
    known = engine.guard.expected_identity()
    return known.id if known else ""


def _is_ours(engine: Context, ours: str) -> bool:
    """Whether the folder belongs to this store; one without a mark is marked."""
    path: Path = engine.artifact_folder.path / MARK
    if not engine.artifact_folder.path.is_dir():
        return False
    with suppress(FileExistsError), path.open("x", encoding="ascii") as file:
        file.write(ours)
    found = path.read_text("ascii")
    if found != ours:
        log.warning("artifacts of another store are not swept", extra={"folder": str(path)})
    return found == ours


class Piece(NamedTuple):
    """Some bytes of an artifact, with the size and media type of the whole."""

    data: bytes
    size: int
    media_type: str


def list_artifacts(
    engine: Context, session: str, *, limit: int = 50, cursor: str | None = None
) -> Page[ArtifactView]:
    """Returns a page of a session's artifacts, sorted by the addresses of their steps."""
    ref = engine.registry.ref(session)
    found = engine.store.artifacts().listed(ref)
    start = number_of(cursor)
    names = sorted(found, key=by_number)[start : start + limit + 1]
    program = _program_of(engine, ref) if names else None
    items = [_view(name, found[name], program) for name in names[:limit]]
    return Page(items=items, next=encode_cursor(start + limit) if len(names) > limit else None)


def _program_of(engine: Context, ref: SessionRef) -> Program | None:
    """The session's program; None for one of a newer version."""
    try:
        return engine.registry.program(engine.store.values(ref, "session", ["program"])["program"])
    except (ProgramNewer, KeyError):
        return None


def read_artifact(engine: Context, session: str, digest: str, *, at: int, limit: int) -> Piece:
    """Returns bytes of a session's artifact from offset `at`. Raises ArtifactUnknown."""
    ref = engine.registry.ref(session)
    known = engine.store.artifacts().about(ref, digest) if is_digest(digest) else None
    data = engine.artifact_folder.read(digest, at=at, limit=limit) if known is not None else None
    if known is None or data is None:
        raise ArtifactUnknown(session, digest[:80])
    return Piece(data, *known)


def _view(name: str, text: str, program: Program | None) -> ArtifactView:
    address, _, kind = name.rpartition("|")
    one = json.loads(text)
    return ArtifactView.model_validate({
        "name": f"{address}/{kind}", "step": address, "kind": kind, "digest": one["digest"],
        "size": one["size"], "media_type": one["media_type"], "at": iso(one["at"]),
        "label": written_name(program, address) if program is not None else "",
    })  # fmt: skip
