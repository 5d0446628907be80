"""Stores the long results and outputs of an attempt as artifacts, before it settles."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal

from app.artifacts.local import LocalArtifacts
from app.domain.artifacts import INLINE_BYTES, Artifact
from app.domain.ids import SessionRef
from app.domain.outcomes import Outcome
from app.domain.program import Action
from app.domain.records import Grant
from app.engine import Engine
from app.redaction import without_keys
from leadhand.errors import ArtifactsFull
from leadhand.models.reasons import Reason, ReasonCode
from workers.artifacts import ArtifactStore, RemoteArtifacts, open_remote
from workers.attempt.redact import secrets_of_task
from workers.processes.own_folders import claim_session_folder, create_file
from workers.task.task import BodyTask

log = logging.getLogger(__name__)

#: Steps whose result may be an artifact; the results of others are short and read by the engine.
_WITH_VALUES = frozenset({Action.TOOL, Action.AGENT})
Name = Literal["value", "stdout", "stderr"]
_OUTPUTS: tuple[Name, ...] = ("stdout", "stderr")
_CHUNK = 1024 * 1024
_BEGIN, _END = b"-----BEGIN ", b"-----END "


def open_artifacts(
    engine: Engine, ref: SessionRef, grant: Grant
) -> LocalArtifacts | RemoteArtifacts:
    """Returns access to the artifacts for one attempt: in a shared folder, or by the API."""
    settings = engine.settings
    if settings.artifacts is not None:
        return engine.local_artifacts
    return open_remote(settings.api_url, settings.secret, ref, grant)


def store_artifacts(
    outcome: Outcome, task: BodyTask, ref: SessionRef, open_store: Callable[[], ArtifactStore]
) -> Outcome:
    """Stores an outcome's long values and outputs as artifacts; returns it with links to them.

    Raises StoreAway.

    A result that cannot be stored fails the attempt, as later steps may need it; it is made again
    where the step has retries, for there may be room then. Without room for an
    output, of which the outcome has the beginning and end, it gets a warning.
    """
    value = _long_value(outcome, task)
    if outcome.spill is None and value is None:
        return outcome
    stored: list[Artifact] = []
    warning = outcome.warning
    store = open_store()
    if outcome.spill is not None:
        try:
            stored += _store_outputs(store, ref, task)
        except ArtifactsFull as error:
            log.warning("output not stored", extra={"step": task.address, "why": str(error)})
            warning = f"the whole output is not stored: {error}"
    if value is not None:
        try:
            stored.append(_store_value(store, ref, task, value))
        except ArtifactsFull as error:
            _delete_outputs(task, stored)
            return _failure(outcome, str(error), tuple(stored))
    _delete_outputs(task, stored)
    return outcome.model_copy(
        update={"spill": None, "artifacts": tuple(stored) or None, "warning": warning}
    )


def _long_value(outcome: Outcome, task: BodyTask) -> bytes | None:
    """The value as JSON if it is too long for the outcome."""
    if task.action not in _WITH_VALUES or outcome.value is None or outcome.word == "skipped":
        return None
    text = json.dumps(outcome.value, ensure_ascii=False, separators=(",", ":"))
    data = text.encode("utf-8", "replace")
    return data if len(data) > INLINE_BYTES else None


def _store_value(store: ArtifactStore, ref: SessionRef, task: BodyTask, value: bytes) -> Artifact:
    claim_session_folder(task.spill)
    path = task.spill / "value.json"
    try:
        with create_file(path) as file:
            file.write(value)
        return _put(store, ref, path, "value", "application/json")
    finally:
        path.unlink(missing_ok=True)


def _store_outputs(store: ArtifactStore, ref: SessionRef, task: BodyTask) -> Iterator[Artifact]:
    """Store the whole outputs without secrets."""
    secrets = secrets_of_task(task)
    for name in _OUTPUTS:
        source, clean = task.spill / f"{name}.log", task.spill / f"{name}.clean"
        with suppress(FileNotFoundError), source.open("rb") as raw:
            try:
                with create_file(clean) as file:
                    for chunk in _redacted(raw, secrets):
                        file.write(chunk)
                yield _put(store, ref, clean, name, "text/plain; charset=utf-8")
            finally:
                clean.unlink(missing_ok=True)


def _delete_outputs(task: BodyTask, stored: Iterable[Artifact]) -> None:
    """Delete the outputs that were stored; until all is stored, the call may be repeated."""
    for one in stored:
        if one.name in _OUTPUTS:
            (task.spill / f"{one.name}.log").unlink(missing_ok=True)


def _put(
    store: ArtifactStore,
    ref: SessionRef,
    path: Path,
    name: Name,
    media_type: str,
) -> Artifact:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    store.put(ref, digest, path)
    return Artifact(name=name, digest=digest, size=path.stat().st_size, media_type=media_type)


def _redacted(file: BinaryIO, secrets: AbstractSet[str]) -> Iterator[bytes]:
    """The file without secrets, in chunks of whole lines; no private key is cut in two."""
    step = -1 if any("\n" in secret for secret in secrets) else _CHUNK
    rest = b""
    while chunk := file.read(step):
        rest += chunk
        end = rest.rfind(b"\n") + 1
        begin = rest.rfind(_BEGIN, 0, end)
        if begin > rest.rfind(_END, 0, end):
            end = rest.rfind(b"\n", 0, begin) + 1
        yield _clean(rest[:end], secrets)
        rest = rest[end:]
    yield _clean(rest, secrets)


def _clean(raw: bytes, secrets: AbstractSet[str]) -> bytes:
    return without_keys(raw.decode(errors="replace"), secrets).encode()


def _failure(outcome: Outcome, why: str, stored: tuple[Artifact, ...]) -> Outcome:
    """The failure of a step whose result cannot be stored."""
    text = f"the result cannot be stored: {why}"
    reason = Reason(code=ReasonCode.FAILED_STEP, text=text)
    return outcome.model_copy(
        update={
            "word": "failed",
            "value": None,
            "reason": reason,
            "retryable": True,
            "spill": None,
            "artifacts": stored or None,
        }
    )
