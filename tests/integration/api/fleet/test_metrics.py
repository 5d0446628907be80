"""What Prometheus reads, read by Prometheus' own parser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from api import create_app
from api.metrics import Family, Sample, render_metrics
from app.engine import Engine
from app.settings import Settings
from tests.session_driving import add_worker, claim, end, run_iteration
from tests.silent_engine import engine_without_store, loop, silent_engine

HEADERS = {"Authorization": "Bearer token"}


SETTINGS = Settings(api_token="token", secret="secret")
ODD = 'odd "name"'


class Clock:
    ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(store_url: str, clock: Clock) -> Engine:
    return silent_engine(store_url, clock=clock, depths={ODD: 3}, lease_s=30, secret="secret")


@pytest.fixture
def running(engine: Engine, clock: Clock) -> str:
    """The session whose step is overdue, in a fleet where other sessions ended or wait."""
    add_worker(engine, "w1", queues=[ODD], concurrency=4)
    accepted_at_once, accepted_third = (
        engine.submit.document(loop(task=task)).session for task in ("a", "b")
    )
    end(engine, accepted_at_once)
    for verdict in ("retry", "retry", "accept"):
        run_iteration(engine, accepted_third, verdict)
    running = str(engine.submit.document(loop(task="c")).session)
    claim(engine, running, worker="w1/42")
    clock.ms += 31_000
    engine.submit.document(loop(task="d"))
    clock.ms += 1_500
    return running


@pytest.fixture
def client(engine: Engine) -> Iterator[FlaskClient]:
    app = create_app(SETTINGS, engine)
    yield app.test_client()
    app.fanout.close()


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """All numbers, by the name that they are told under."""
    return {
        family.samples[0].name: [(dict(sample.labels), sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
        if family.samples
    }


@pytest.mark.usefixtures("running")
def test_the_fleet_as_numbers(client: FlaskClient) -> None:
    answer = client.get("/metrics", headers=HEADERS)
    assert answer.status_code == 200
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    told = samples(answer.text)
    sessions = {labels["status"]: count for labels, count in told["leadhand_sessions"] if count}
    assert sessions == {"active": 2, "completed": 2}
    assert told["leadhand_recent_ends"] == [({"status": "completed", "reason": "done"}, 2)]
    assert told["leadhand_recent_loops_accepted"] == [
        ({"iterations": "1"}, 1),
        ({"iterations": "3"}, 1),
    ]
    assert told["leadhand_recent_verdicts"] == [
        ({"verdict": "accept"}, 2),
        ({"verdict": "retry"}, 2),
    ]
    # The attempt's lease, and the time limits of the two active sessions.
    assert told["leadhand_timed"] == [({"list": "leases"}, 3), ({"list": "ready"}, 1)]
    assert told["leadhand_steps_running"] == [({"action": "agent"}, 1)]
    assert told["leadhand_queue_depth"] == [({"queue": "agents"}, 0), ({"queue": ODD}, 3)]
    assert told["leadhand_queue_oldest_seconds"] == [
        ({"queue": "agents"}, 1.5),
        ({"queue": ODD}, 0),
    ]
    assert told["leadhand_queue_slots"] == [({"queue": "agents"}, 0), ({"queue": ODD}, 4)]
    assert told["leadhand_workers"] == [({"place": "local"}, 1)]
    assert told["leadhand_overdue"] == [({"list": "leases"}, 1), ({"list": "ready"}, 0)]
    assert told["leadhand_overdue_oldest_seconds"][0] == ({"list": "leases"}, 2.5)


@pytest.mark.usefixtures("running")
def test_every_metric_is_explained(client: FlaskClient) -> None:
    page = (Path(__file__).parents[4] / "docs" / "operations.md").read_text()
    told = samples(client.get("/metrics", headers=HEADERS).text)
    assert [name for name in told if f"`{name}{{" not in page and f"`{name}`" not in page] == []


@pytest.mark.parametrize("text", ["plain", 'with "quotes"', "back\\slash", "two\nlines", "ü", ""])
def test_any_label_comes_back_whole(text: str) -> None:
    told = samples(render_metrics([Family("leadhand_x", "What.", (Sample(2.5, {"of": text}),))]))
    assert told == {"leadhand_x": [({"of": text}, 2.5)]}


@pytest.mark.parametrize("path", ["/metrics", "/v1/queues", "/v1/fleet"])
def test_the_fleet_is_shown_to_those_who_may_read(client: FlaskClient, path: str) -> None:
    assert client.get(path).status_code == 401
    assert client.get(f"{path}?x=1", headers=HEADERS).status_code == 422
    assert client.get(path, headers=HEADERS).status_code == 200
    away = create_app(SETTINGS, engine_without_store()).test_client()
    assert away.get(path, headers=HEADERS).status_code == 503


def test_workers_come_with_what_they_do(client: FlaskClient, running: str) -> None:
    (worker,) = answered(client, "/v1/workers")["items"]
    assert [step["session"] for step in worker["running"]] == [running]
    fleet = answered(client, "/v1/fleet")
    assert fleet["workers"] == [worker]
    assert fleet["leases"] == {"count": 1, "oldest_s": 2.5, "entries": 3}


def answered(client: FlaskClient, path: str) -> Any:
    answer = client.get(path, headers=HEADERS)
    assert answer.status_code == 200
    return answer.json
