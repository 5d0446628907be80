"""What Prometheus reads, read by Prometheus' own parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from api import create_app
from api.exposition import Family, Sample, exposed
from app.settings import Settings
from tests.memory_engine import MemoryEngine

HEADERS = {"Authorization": "Bearer token"}


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
def client(engine: MemoryEngine) -> FlaskClient:
    return create_app(Settings(api_token="token", secret="secret"), engine).test_client()


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """All numbers, by the name that they are told under."""
    return {
        family.samples[0].name: [(dict(sample.labels), sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
        if family.samples
    }


def test_the_fleet_as_numbers(client: FlaskClient) -> None:
    answer = client.get("/metrics", headers=HEADERS)
    assert answer.status_code == 200
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    told = samples(answer.text)
    assert told["leadhand_sessions"] == [({"status": "active"}, 1), ({"status": "completed"}, 2)]
    assert told["leadhand_recent_ends"] == [({"status": "completed", "reason": "done"}, 2)]
    assert told["leadhand_recent_loops_accepted"] == [
        ({"iterations": "1"}, 1),
        ({"iterations": "3"}, 1),
    ]
    assert told["leadhand_recent_verdicts"] == [
        ({"verdict": "accept"}, 2),
        ({"verdict": "retry"}, 2),
    ]
    assert told["leadhand_timed"] == [({"list": "leases"}, 7), ({"list": "ready"}, 0)]
    assert told["leadhand_steps_running"] == [({"action": "agent"}, 1)]
    assert told["leadhand_queue_depth"] == [({"queue": 'odd "name"'}, 3)]
    assert told["leadhand_queue_oldest_seconds"] == [({"queue": 'odd "name"'}, 1.5)]
    assert told["leadhand_workers"] == [({"place": "local"}, 1)]
    assert told["leadhand_overdue"] == [({"list": "leases"}, 1), ({"list": "ready"}, 0)]
    assert told["leadhand_overdue_oldest_seconds"][0] == ({"list": "leases"}, 2.5)


def test_every_metric_is_explained(client: FlaskClient) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    told = samples(client.get("/metrics", headers=HEADERS).text)
    assert [name for name in told if f"`{name}{{" not in page and f"`{name}`" not in page] == []


@pytest.mark.parametrize("text", ["plain", 'with "quotes"', "back\\slash", "two\nlines", "ü", ""])
def test_any_label_comes_back_whole(text: str) -> None:
    told = samples(exposed([Family("leadhand_x", "What.", (Sample(2.5, {"of": text}),))]))
    assert told == {"leadhand_x": [({"of": text}, 2.5)]}


@pytest.mark.parametrize("path", ["/metrics", "/v1/queues", "/v1/fleet"])
def test_the_fleet_is_shown_to_those_who_may_read(
    client: FlaskClient, engine: MemoryEngine, path: str
) -> None:
    assert client.get(path).status_code == 401
    assert client.get(f"{path}?x=1", headers=HEADERS).status_code == 422
    engine.away = True
    assert client.get(path, headers=HEADERS).status_code == 503


def test_workers_come_with_what_they_do(client: FlaskClient) -> None:
    (worker,) = answered(client, "/v1/workers")["items"]
    assert [step["session"] for step in worker["running"]] == ["0a0a0a0a"]
    fleet = answered(client, "/v1/fleet")
    assert fleet["workers"] == [worker]
    assert fleet["leases"] == {"count": 1, "oldest_s": 2.5, "entries": 7}


def answered(client: FlaskClient, path: str) -> Any:
    answer = client.get(path, headers=HEADERS)
    assert answer.status_code == 200
    return answer.json
