"""Statistics over REST, and as the tables of `leadhand stats`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from flask.testing import FlaskClient

from api import create_app
from app.engine import Engine
from app.settings import Settings
from leadhand.cli.fleet import statistics_lines
from leadhand.models.views.fleet import StatisticsView
from tests.session_driving import run_iteration
from tests.silent_engine import loop, silent_engine

HEADERS = {"Authorization": "Bearer token"}
DAY = "2023-11-14"


@pytest.fixture
def engine(store_url: str) -> Engine:
    now = int(datetime(2023, 11, 14, 12, tzinfo=UTC).timestamp() * 1000)
    return silent_engine(store_url, clock=lambda: now, secret="secret")


@pytest.fixture
def client(engine: Engine) -> FlaskClient:
    return create_app(Settings(api_token="token", secret="secret"), engine).test_client()


def get(client: FlaskClient, path: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/statistics{path}", headers=HEADERS).get_json()
    return found


def test_a_period_has_what_ended_in_it(engine: Engine, client: FlaskClient) -> None:
    id_ = engine.submit.document(loop(task="a")).session
    run_iteration(engine, id_, "retry")
    run_iteration(engine, id_, "accept")
    found = get(client, f"?first={DAY}&last={DAY}")
    assert found["days"] == [{"day": DAY, "ended": {"completed": 1}, "cost_usd": 0}]
    assert [(one["status"], one["count"]) for one in found["sessions"]] == [("completed", 1)]
    assert [(one["iteration"], one["accepted"]) for one in found["acceptance"]] == [(1, 0), (2, 1)]
    assert get(client, "?first=2023-11-15&last=2023-11-16")["days"] == []


def test_the_last_seven_days_unless_asked_otherwise(client: FlaskClient) -> None:
    assert get(client, f"?last={DAY}")["first"] == "2023-11-08"


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("?first=2023-11-15&last=2023-11-14", "it is after the last day"),
        ("?first=2021-01-01&last=2023-11-14", "at most 400 days"),
        ("?first=yesterday", "date"),
    ],
)
def test_a_period_that_cannot_be_names_its_field(
    client: FlaskClient, query: str, hint: str
) -> None:
    answer = client.get(f"/v1/statistics{query}", headers=HEADERS)
    (error,) = answer.get_json()["errors"]
    assert (answer.status_code, error["field"]) == (422, "first")
    assert hint in error["message"]


def test_a_reader_needs_a_token(client: FlaskClient) -> None:
    assert client.get("/v1/statistics").status_code == 401


def test_the_tables_show_shares_and_means() -> None:
    view = StatisticsView.model_validate({
        "first": DAY, "last": DAY, "days": [{"day": DAY, "ended": {"completed": 1, "failed": 1}}],
        "sessions": [
            {"kind": "loop", "status": "completed", "reason": "done", "count": 1, "seconds": 4},
            {"kind": "flow", "name": "fix", "status": "failed", "reason": "budget", "count": 1,
             "seconds": 600},
        ],
        "acceptance": [{"agent": "claude", "iteration": 1, "reached": 2, "accepted": 1}],
        "checks": [{"checker": "pytest", "verdict": "retry", "count": 3, "seconds": 6}],
        "usage": [{"kind": "loop", "agent": "claude", "cost_usd": 0.5, "input_tokens": 9}],
        "cost_per_completed_usd": 0.5,
    })  # fmt: skip
    assert list(statistics_lines(view)) == [
        "2023-11-14 to 2023-11-14 (UTC): 2 sessions ended, 1 completed (50 %), 0.5000 USD for each",
        "",
        "ENDS OF SESSIONS",
        "KIND  NAME  STATUS     REASON  SESSIONS  MEAN",
        "loop        completed  done    1         4.0 s",
        "flow  fix   failed     budget  1         10 min",
        "",
        "ACCEPTED LOOPS",
        "AGENT   ITERATION  REACHED  ACCEPTED  SHARE",
        "claude  1          2        1         50 %",
        "",
        "CHECKERS",
        "CHECKER  VERDICT  CHECKS  SHARE  MEAN",
        "pytest   retry    3       100 %  2.0 s",
        "",
        "USED BY AGENTS",
        "AGENT   KIND  USD     TOKENS IN  TOKENS OUT",
        "claude  loop  0.5000  9          0",
    ]


def test_a_period_without_ends_says_so() -> None:
    view = StatisticsView.model_validate({"first": "2023-11-08", "last": DAY})
    assert list(statistics_lines(view)) == ["nothing ended in the last 7 days"]
