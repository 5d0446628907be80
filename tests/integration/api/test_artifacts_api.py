"""Artifacts over REST: upload by an attempt's worker, list, read in parts, and who may do what."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from app.core.addresses import SessionRef
from app.core.artifacts import Artifact
from app.core.outcomes import Outcome
from app.engine import Engine
from app.security import signatures
from app.store.artifact_folder import ArtifactFolder, Limits
from leadhand.contract.work import PART_BYTES
from leadhand.graphs.documents import GraphDocument
from tests.silent_engine import OPERATOR, SECRET
from workers.artifacts import SCOPES

DATA = b"0123456789" * 300_000
DIGEST = hashlib.sha256(DATA).hexdigest()
OPERATORS = {"Authorization": f"Bearer {OPERATOR}"}


@pytest.fixture(autouse=True)
def folder(engine: Engine, tmp_path: Path) -> ArtifactFolder:
    found = ArtifactFolder(tmp_path / "artifacts", Limits(5_000_000, 6_000_000))
    engine.artifact_folder = found
    return found


@pytest.fixture
def session(engine: Engine) -> str:
    document = GraphDocument.model_validate({"steps": [{"name": "search", "tool": "echo"}]})
    return engine.submit.document(document).session


def claim(engine: Engine, session: str) -> tuple[SessionRef, dict[str, str], dict[str, str]]:
    """The session, and the headers of its attempt's worker and of its body."""
    ref = SessionRef(session, session)
    grant = engine.attempts.claim(ref, "search", nonce="n", worker="w").grants[0]
    tokens = [
        signatures.mint(signatures.Caller(session, "search", grant.fence, scopes), secret=SECRET)
        for scopes in (SCOPES, signatures.BODY_SCOPES)
    ]
    worker, body = ({"Authorization": f"Bearer {token}"} for token in tokens)
    return ref, worker, body


def part(at: int, data: bytes = DATA, size: int | None = None) -> dict[str, object]:
    piece = base64.b64encode(data[at : at + PART_BYTES]).decode()
    return {"at": at, "size": size or len(data), "data": piece}


def test_upload_settle_and_read(client: FlaskClient, engine: Engine, session: str) -> None:
    ref, worker, _ = claim(engine, session)
    path = f"/v1/sessions/{session}/artifacts"
    first = client.put(f"{path}/{DIGEST}", json=part(0), headers=worker)
    assert (first.status_code, first.json) == (200, {"digest": DIGEST, "complete": False})
    last = client.put(f"{path}/{DIGEST}", json=part(PART_BYTES), headers=worker)
    assert last.json == {"digest": DIGEST, "complete": True}
    # No session refers to it before the settle, so it cannot be read.
    assert client.get(f"{path}/{DIGEST}", headers=OPERATORS).status_code == 404

    grant = engine.attempts.claim(ref, "search", nonce="n", worker="w").grants[0]
    artifact = Artifact(name="stdout", digest=DIGEST, size=len(DATA), media_type="text/plain")
    work = engine.attempts.work(ref, grant)
    outcome = Outcome(word="succeeded", artifacts=(artifact,))
    assert engine.attempts.settle(work, outcome, take=[], worker="w").word == "settled"

    listed = client.get(path, headers=OPERATORS).json
    assert listed is not None
    assert [(one["name"], one["size"]) for one in listed["items"]] == [("search/stdout", len(DATA))]
    response = client.get(f"{path}/{DIGEST}", headers=OPERATORS)
    assert response.data == DATA[:PART_BYTES]
    assert response.headers["Content-Range"] == f"bytes 0-{PART_BYTES - 1}/{len(DATA)}"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    rest = client.get(f"{path}/{DIGEST}?at={PART_BYTES}", headers=OPERATORS)
    assert response.data + rest.data == DATA


def test_only_the_worker_of_a_running_attempt_uploads(
    client: FlaskClient, engine: Engine, session: str
) -> None:
    ref, worker, body = claim(engine, session)
    path = f"/v1/sessions/{session}/artifacts/{DIGEST}"
    refused = client.put(path, json=part(0), headers=body)
    assert refused.status_code == 403
    assert refused.json is not None
    assert refused.json["detail"] == "the token lacks the scope 'artifacts'"
    other = engine.submit.document(
        GraphDocument.model_validate({"steps": [{"name": "search", "tool": "echo"}]})
    ).session
    elsewhere = f"/v1/sessions/{other}/artifacts/{DIGEST}"
    assert client.put(elsewhere, json=part(0), headers=worker).status_code == 403
    grant = engine.attempts.claim(ref, "search", nonce="n", worker="w").grants[0]
    work = engine.attempts.work(ref, grant)
    engine.attempts.settle(work, Outcome(word="succeeded"), take=[], worker="w")
    assert client.put(path, json=part(0), headers=worker).status_code == 401


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (part(5), 409, "bytes 0 to 5 are missing"),
        (part(0, size=5_000_001), 507, "LEADHAND_ARTIFACT_MAX"),
        (part(0, b"abc", size=2), 422, "give the size of the whole artifact"),
        ({"at": 0, "size": 3, "data": "?"}, 422, "give base64"),
        ({"at": 0, "size": 3, "data": "\u009b"}, 422, "give base64"),
        (part(0, b"abc"), 409, "its bytes have the digest"),
    ],
)
def test_bad_uploads_are_named(
    client: FlaskClient, session: str, body: dict[str, object], status: int, said: str
) -> None:
    path = f"/v1/sessions/{session}/artifacts/{DIGEST}"
    response = client.put(path, json=body, headers=OPERATORS)
    assert response.status_code == status
    assert response.json is not None
    assert said in response.json["detail"]


def test_total_limit_is_named(client: FlaskClient, session: str, folder: ArtifactFolder) -> None:
    for byte in (b"a", b"b"):
        data = byte * 1_900_000
        path = f"/v1/sessions/{session}/artifacts/{hashlib.sha256(data).hexdigest()}"
        assert client.put(path, json=part(0, data), headers=OPERATORS).status_code == 200
    path = f"/v1/sessions/{session}/artifacts/{DIGEST}"
    response = client.put(path, json=part(0), headers=OPERATORS)
    assert response.status_code == 507
    assert response.json is not None
    assert "LEADHAND_ARTIFACTS_MAX" in response.json["detail"]
