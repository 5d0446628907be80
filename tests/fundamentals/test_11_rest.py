"""Lesson 11: REST.

Everything is an HTTP request with a bearer token. A submit is answered with 202 and the session's
path. The same `Idempotency-Key` with the same body is the same session, so a request whose answer
was lost can be sent again. Every error is a problem document (RFC 9457) with a hint.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.acceptance.project import Project
from tests.waiting import wait_until


@pytest.fixture
def http(services: Project) -> Iterator[httpx2.Client]:
    """Any HTTP client will do; address and token are in `run.json` of the state folder."""
    with services.api() as client:
        yield client


def loop(folder: Path) -> dict[str, object]:
    return {
        "kind": "loop",
        "task": "Write good.txt",
        "doer": {"command": "echo good > good.txt"},
        "checkers": ["test -f good.txt"],
        "cwd": str(folder),
    }


def test_a_session_is_submitted_followed_and_read(http: httpx2.Client, folder: Path) -> None:
    submitted = http.post("/v1/sessions", json=loop(folder))
    assert submitted.status_code == 202
    session = submitted.headers["Location"]

    wait_until(lambda: http.get(session).json()["status"] == "completed")

    assert http.get(f"{session}/result").json()["verdict"] == "accept"
    events = [event["type"] for event in http.get(f"{session}/events").json()["items"]]
    assert (events[0], events[-1]) == ("session.created", "session.ended")


def test_a_repeated_submit_starts_nothing_twice(http: httpx2.Client, folder: Path) -> None:
    key = {"Idempotency-Key": f"nightly in {folder}"}

    first = http.post("/v1/sessions", json=loop(folder), headers=key)
    again = http.post("/v1/sessions", json=loop(folder), headers=key)

    assert first.headers["Location"] == again.headers["Location"]


def test_an_error_names_the_field_and_the_way_out(http: httpx2.Client, folder: Path) -> None:
    refused = http.post("/v1/sessions", json={**loop(folder), "max_iterations": "three"})

    assert refused.status_code == 422
    assert refused.headers["Content-Type"] == "application/problem+json"
    (error,) = refused.json()["errors"]
    assert error["field"] == "max_iterations"
