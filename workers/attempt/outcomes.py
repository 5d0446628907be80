"""Prepares outcomes for the store: long results become artifacts, and secrets are redacted."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal

from app.core.addresses import SessionRef
from app.core.artifacts import INLINE_BYTES, Artifact
from app.core.environment import SessionEnvironment
from app.core.outcomes import Outcome
from app.core.program import Action
from app.core.records import Grant
from app.engine import Engine
from app.redaction import without_keys, without_secrets
from app.store.artifact_folder import LocalArtifacts
from leadhand.errors import ArtifactsFull
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.step import ToolCallView
from workers.artifacts import ArtifactStore, RemoteArtifacts, open_remote
from workers.live_output import redacted_start
from workers.processes.environment import is_plain
from workers.processes.user_folders import claim_session_folder, create_file
from workers.registry.agents import SECRET
from workers.task import BodyTask

#: Values shorter than this are not redacted: they occur in ordinary text.
_SHORTEST = 8
#: Nor are words such as `production` and `us-east`, unless the variable has a secret's name.
_WORD = re.compile(r"[A-Za-z]{1,16}([-_][A-Za-z]{1,16})?")
#: Characters of a tool call's input and of its result.
_TOOL_LIMIT = 500
log = logging.getLogger(__name__)
#: Steps whose result may be an artifact; the results of others are short and read by the engine.
_WITH_VALUES = frozenset({Action.TOOL, Action.AGENT})
Name = Literal["value", "stdout", "stderr"]
_OUTPUTS: tuple[Name, ...] = ("stdout", "stderr")
_CHUNK = 1024 * 1024
_BEGIN, _END = b"-----BEGIN ", b"-----END "


def redact_outcome(outcome: Outcome, task: BodyTask) -> Outcome:
    """Returns the outcome with credentials and the task's secrets (8+ characters) redacted."""
    if not _has_text(outcome):
        return outcome
    secrets = secrets_of_task(task)
    reason = outcome.reason
    clean: dict[str, object] = {}
    if outcome.text:
        clean["text"] = without_keys(outcome.text, secrets)
    if outcome.value is not None:
        clean["value"] = without_secrets(outcome.value, secrets)
    if reason is not None:
        clean["reason"] = _reason(reason, secrets)
    if outcome.raw is not None:
        clean["raw"] = without_keys(outcome.raw, secrets)
    if outcome.tools is not None:
        clean["tools"] = _tools(outcome.tools, secrets)
    if outcome.prompt is not None:
        clean["prompt"] = without_keys(outcome.prompt, secrets)
    return outcome.model_copy(update=clean) if clean else outcome


def _has_text(outcome: Outcome) -> bool:
    """Whether the outcome has a text or value that may show a secret."""
    values = (outcome.value, outcome.reason, outcome.raw, outcome.tools, outcome.prompt)
    return bool(outcome.text) or values.count(None) < len(values)


def secrets_of_task(task: BodyTask) -> frozenset[str]:
    """Returns the secret values that no output or outcome of this task may show."""
    names = task.agents.secret_names | task.shelf.book.secret_names
    held = secrets_held(names, task.session_environment, task.worker_environment)
    return held | secrets_passed(task.session_environment) | _long(set(task.handed_tokens))


def secrets_passed(given: SessionEnvironment) -> frozenset[str]:
    """Returns the secret values that a session's submitter passed, and their single lines.

    Those of variables such as HOME and LANG are no secrets, and are in many texts. A plain word
    counts as a secret only in a variable with such a name.

    >>> passed = {"MODE": "production", "API_KEY": "abcdefgh", "HOST": "db-7.internal"}
    >>> sorted(secrets_passed(SessionEnvironment(passed)))
    ['abcdefgh', 'db-7.internal']
    """
    if not given.passed:
        return frozenset()
    values = [
        value
        for name, value in given.passed.items()
        if not is_plain(name) and (SECRET.search(name) or not _WORD.fullmatch(value))
    ]
    return _long({*values, *(line.strip() for value in values for line in value.splitlines())})


def secrets_held(
    names: AbstractSet[str], given: SessionEnvironment, worker: Mapping[str, str]
) -> frozenset[str]:
    """Returns the values of these secret variables: the submitting shell's, else the worker's."""
    shell = given.shell
    return _long({(shell[n] if n in shell else worker.get(n)) or "" for n in names})


def _long(values: set[str]) -> frozenset[str]:
    return frozenset(value for value in values if len(value) >= _SHORTEST)


def _tools(calls: tuple[ToolCallView, ...], secrets: frozenset[str]) -> tuple[ToolCallView, ...]:
    return tuple(
        ToolCallView(
            name=without_keys(call.name, secrets),
            input=redacted_start(call.input, _TOOL_LIMIT, secrets),
            result=redacted_start(call.result, _TOOL_LIMIT, secrets),
            failed=call.failed,
        )
        for call in calls
    )


def _reason(reason: Reason, secrets: frozenset[str]) -> Reason:
    beneath = reason.beneath
    return reason.model_copy(
        update={
            "text": without_keys(reason.text, secrets),
            "beneath": None if beneath is None else _reason(beneath, secrets),
        }
    )


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
