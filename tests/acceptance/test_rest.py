"""The same work over REST: submitted and followed by an ordinary HTTP program."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.acceptance.project import LEARNS, Project, pages
from tests.waiting import wait_until

pytestmark = pytest.mark.acceptance


class Curl(NamedTuple):
    """curl, as anybody would use it."""

    url: str
    token: str

    def post(self, path: str, body: object, *headers: str) -> tuple[int, str, dict[str, Any]]:
        """The status, the Location header and the body."""
        told = (*self._command(path, "Content-Type: application/json", *headers), "-i", "--data")
        done = subprocess.run([*told, json.dumps(body)], capture_output=True, text=True, check=True)
        head, _, text = done.stdout.replace("\r", "").partition("\n\n")
        lines = dict(line.partition(": ")[::2] for line in head.lower().splitlines()[1:])
        return int(head.split()[1]), lines.get("location", ""), json.loads(text)

    @contextmanager
    def stream(self, path: str, *headers: str) -> Iterator[Iterator[str]]:
        """The lines of an event stream; leaving it breaks the connection."""
        command = self._command(path, "Accept: text/event-stream", *headers)
        with subprocess.Popen([*command, "-N"], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield (line.rstrip("\n") for line in process.stdout)
            finally:
                process.kill()

    def _command(self, path: str, *headers: str) -> list[str]:
        told = [f"Authorization: Bearer {self.token}", *headers]
        return ["curl", "-sS", *(word for text in told for word in ("-H", text)), self.url + path]


class Plain(NamedTuple):
    """The same where there is no curl."""

    url: str
    token: str

    def post(self, path: str, body: object, *headers: str) -> tuple[int, str, dict[str, Any]]:
        answer = httpx2.post(self.url + path, json=body, headers=self._headers(*headers))
        return answer.status_code, answer.headers.get("location", ""), answer.json()

    @contextmanager
    def stream(self, path: str, *headers: str) -> Iterator[Iterator[str]]:
        told = self._headers("Accept: text/event-stream", *headers)
        with httpx2.stream("GET", self.url + path, headers=told) as answer:
            yield answer.iter_lines()

    def _headers(self, *headers: str) -> dict[str, str]:
        bearer = f"Authorization: Bearer {self.token}"
        return dict(text.partition(": ")[::2] for text in (bearer, *headers))


def caller(project: Project) -> Curl | Plain:
    kind = Curl if shutil.which("curl") else Plain
    return kind(project.run["url"], project.run["token"])


def loop(folder: Path, **more: object) -> dict[str, object]:
    return {
        "kind": "loop",
        "task": "make it good",
        "doer": {"command": "python3 doer.py"},
        "checkers": ["test -f good.txt", "true"],
        "cwd": str(folder),
        **more,
    }


def told(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """The frames of a stream that carry an event."""
    frame: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, text = line.partition(": ")
            frame[name] = text
        else:
            if "event" in frame:
                yield frame
            frame = {}


def test_a_stream_that_breaks_off_goes_on_without_a_gap_or_a_double(alone: Project):
    alone.write("doer.py", LEARNS)
    with alone.up() as client:
        by_hand = caller(alone)
        status, location, session = by_hand.post("/v1/sessions", loop(alone.folder))
        assert (status, location) == (202, f"/v1/sessions/{session['id']}")
        frames: list[dict[str, str]] = []
        for most in (3, 6, 1_000):
            last = [f"Last-Event-ID: {frames[-1]['id']}"] if frames else []
            with by_hand.stream(f"{location}/events", *last) as lines:
                for frame in told(lines):
                    frames.append(frame)
                    if len(frames) == most:
                        break
        assert frames[-1]["event"] == "end"
        assert json.loads(frames.pop()["data"]) == {"status": "completed"}
        kept = list(pages(client, f"{location}/events", by="after"))
        assert [json.loads(frame["data"]) for frame in frames] == kept
        assert len({frame["id"] for frame in frames}) == len(frames) > 6
        result = client.get(f"{location}/result").json()
        assert (result["verdict"], result["iterations"]) == ("accept", 2)
        ledger = list(pages(client, f"{location}/ledger"))
        assert ledger == result["history"]
        assert {c["verdict"] for c in ledger[0]["checks"]} == {"accept", "retry"}


def test_the_same_key_is_the_same_session_and_another_body_is_refused(project: Project):
    project.write("doer.py", LEARNS)
    with project.api() as client:
        by_hand = caller(project)
        key = "Idempotency-Key: nightly 17"
        first = by_hand.post("/v1/sessions", loop(project.folder), key)
        again = by_hand.post("/v1/sessions", loop(project.folder), key)
        assert (first[0], again[0]) == (202, 202)
        assert first[1] == again[1]
        status, _, problem = by_hand.post("/v1/sessions", loop(project.folder, task="other"), key)
        assert status == 422
        assert "nightly 17" in problem["detail"]
        assert problem["hint"]
        wait_until(lambda: client.get(f"{first[1]}/result").status_code == 200, timeout=20)
        after_its_end = by_hand.post("/v1/sessions", loop(project.folder), key)
        assert after_its_end[1] == first[1]
    assert len(project.sessions()) == 1


def test_a_result_is_refused_while_the_session_runs(project: Project):
    with project.api() as client:
        body = loop(project.folder, doer={"command": "until test -e go; do sleep 0.05; done"})
        session = client.post("/v1/sessions", json=body).json()["id"]
        early = client.get(f"/v1/sessions/{session}/result")
        assert early.status_code == 409
        assert early.headers["content-type"] == "application/problem+json"
        assert early.json()["session_status"] == "active"
        assert client.delete(f"/v1/sessions/{session}").status_code == 409
        assert client.post(f"/v1/sessions/{session}/abort", json={}).status_code == 202
        result = wait_until(
            lambda: client.get(f"/v1/sessions/{session}/result").json().get("status"), timeout=20
        )
        assert result in (409, "aborted")
        wait_until(lambda: client.get(f"/v1/sessions/{session}/result").status_code == 200)
        assert client.delete(f"/v1/sessions/{session}").status_code == 204
        assert client.get(f"/v1/sessions/{session}").status_code == 404
