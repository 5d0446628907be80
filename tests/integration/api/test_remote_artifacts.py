"""A worker that does not share the folder: it uploads to the API, and reads there."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from werkzeug.serving import make_server

from api import create_app
from app.core.addresses import SessionRef
from app.core.artifacts import Artifact
from app.core.outcomes import Outcome
from app.engine import Engine
from app.settings import Settings
from app.store.artifact_folder import ArtifactFolder, Limits
from leadhand.client.client import Client
from leadhand.errors import ArtifactRefused, ArtifactsFull, ArtifactUnknown, StoreAway
from leadhand.errors import ArtifactUnknown as NoArtifact
from leadhand.graphs.documents import GraphDocument
from tests.silent_engine import OPERATOR, SECRET
from workers.artifacts import open_remote

VALUE: list[JsonValue] = ["x" * 1000] * 5000
STEPS = [
    {"name": "search", "tool": "echo"},
    {"name": "report", "tool": "echo", "arguments": {"last": "${search[4999]}"}},
]


@pytest.fixture
def url(engine: Engine, tmp_path: Path) -> Iterator[str]:
    folder = ArtifactFolder(tmp_path / "artifacts", Limits(10_000_000, 20_000_000))
    engine.artifact_folder = folder
    app = create_app(Settings(api_token=OPERATOR, secret=SECRET), engine)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    engine.attempts.open_artifacts = lambda ref, grant: open_remote(url, SECRET, ref, grant)
    yield url
    server.shutdown()
    thread.join()
    server.server_close()
    app.fanout.close()


def test_worker_uploads_and_reads_over_http(engine: Engine, url: str, tmp_path: Path) -> None:
    session = engine.submit.document(GraphDocument.model_validate({"steps": STEPS})).session
    ref = SessionRef(session, session)
    grant = engine.attempts.claim(ref, "search", nonce="n", worker="w").grants[0]
    data = json.dumps(VALUE).encode()
    digest = hashlib.sha256(data).hexdigest()
    file = tmp_path / "value.json"
    file.write_bytes(data)
    remote = open_remote(url, SECRET, ref, grant)
    remote.put(ref, digest, file)
    remote.put(ref, digest, file)  # after a lost answer
    with pytest.raises(ArtifactUnknown):
        remote.read(ref, digest, len(data))  # no outcome refers to it yet
    artifact = Artifact(name="value", digest=digest, size=len(data), media_type="application/json")
    outcome = Outcome(word="succeeded", value=VALUE, artifacts=(artifact,))
    work = engine.attempts.work(ref, grant)
    engine.attempts.settle(work, outcome, take=[], worker="w")

    later = engine.attempts.claim(ref, "report", nonce="m", worker="w").grants[0]
    assert engine.attempts.work(ref, later).inputs["arguments"] == {"last": "x" * 1000}
    with Client(url, OPERATOR) as client:
        assert client.artifact(session, digest) == data
        assert [one.digest for one in client.artifacts(session).items] == [digest]
        with pytest.raises(NoArtifact):
            client.artifact(session, "0" * 64)
        with pytest.raises(NoArtifact, match="is not the digest"):
            client.artifact(session, "../steps")


def test_refused_upload_names_the_limit(engine: Engine, url: str, tmp_path: Path) -> None:
    session = engine.submit.document(GraphDocument.model_validate({"steps": STEPS})).session
    ref = SessionRef(session, session)
    grant = engine.attempts.claim(ref, "search", nonce="n", worker="w").grants[0]
    file = tmp_path / "large"
    file.write_bytes(b"x" * 10_000_001)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(ArtifactsFull, match="LEADHAND_ARTIFACT_MAX, 10000000 bytes"):
        open_remote(url, SECRET, ref, grant).put(ref, digest, file)
    with Client(url, OPERATOR) as client, pytest.raises(ArtifactRefused, match="ARTIFACT_MAX"):
        client.put_artifact(session, b"x" * 10_000_001)


def test_api_that_is_away_is_tried_again(engine: Engine, tmp_path: Path) -> None:
    session = engine.submit.document(GraphDocument.model_validate({"steps": STEPS})).session
    ref = SessionRef(session, session)
    grant = engine.attempts.claim(ref, "search", nonce="n", worker="w").grants[0]
    file = tmp_path / "value"
    file.write_bytes(b"x")
    with pytest.raises(StoreAway, match=r"the API at http://127\.0\.0\.1:9 does not answer"):
        open_remote("http://127.0.0.1:9", SECRET, ref, grant).put(ref, "0" * 64, file)
