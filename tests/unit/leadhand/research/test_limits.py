"""Circuit breaker, back-off and configuration."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leadhand.research import (
    AgentConfig,
    CircuitBreaker,
    CircuitOpenError,
    RetryConfig,
    retry_with_backoff,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def state_of(breaker: CircuitBreaker) -> str:
    return breaker.state


async def works() -> str:
    return "ok"


async def fails() -> None:
    raise OSError("down")


def test_breaker_opens_after_five_failures_and_tries_again_after_a_minute() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock=clock)
    for _ in range(5):
        assert state_of(breaker) == "closed"
        with pytest.raises(OSError, match="down"):
            asyncio.run(breaker.call(fails))
    assert state_of(breaker) == "open"
    with pytest.raises(CircuitOpenError, match="Circuit breaker is open after 5 failures"):
        asyncio.run(breaker.call(works))
    clock.now = 60.0
    assert state_of(breaker) == "half-open"
    assert asyncio.run(breaker.call(works)) == "ok"
    assert (state_of(breaker), breaker.failures) == ("closed", 0)


def test_failure_of_the_one_try_opens_the_breaker_again() -> None:
    clock = Clock()
    breaker = CircuitBreaker(threshold=1, timeout=10, clock=clock)
    breaker.record_failure()
    clock.now = 10.0
    breaker.before_call()
    with pytest.raises(CircuitOpenError):
        breaker.before_call()  # one call at a time is tried
    breaker.record_failure()
    assert state_of(breaker) == "open"


def test_success_resets_the_count() -> None:
    breaker = CircuitBreaker(threshold=2)
    breaker.record_failure()
    breaker.record_success()
    breaker.record_failure()
    assert state_of(breaker) == "closed"


def test_cancelled_try_leaves_the_breaker_half_open() -> None:
    clock = Clock()
    breaker = CircuitBreaker(threshold=1, timeout=1, clock=clock)
    breaker.record_failure()
    clock.now = 1.0
    breaker.before_call()
    breaker.record_cancellation()
    breaker.before_call()


def test_last_error_is_raised_after_all_attempts() -> None:
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    with pytest.raises(OSError, match="down"):
        asyncio.run(retry_with_backoff(fails, config=RetryConfig(jitter=False), sleep=sleep))
    assert delays == [1.0, 2.0]
    assert asyncio.run(retry_with_backoff(works, sleep=sleep)) == "ok"


def test_jitter_is_at_least_half_of_the_delay() -> None:
    config = RetryConfig()
    assert [config.delay(2, chance=partial(float, one)) for one in (0, 1)] == [1.0, 2.0]


def test_configuration_has_the_defaults_of_the_seed() -> None:
    config = AgentConfig()
    assert (config.max_retries, config.timeout_seconds, config.enable_checkpoints) == (
        3, 300.0, True,
    )  # fmt: skip
    assert (config.log_level, config.state_dir) == ("INFO", ".polyhedra/agent")


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_retries", "many"), ("timeout_seconds", -1), ("enable_checkpoints", "perhaps"),
     ("state_dir", ""), ("max_retries", True), ("nothing", 1), ("timeout_seconds", "nan")],
)  # fmt: skip
def test_bad_setting_is_ignored_with_a_warning(
    name: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert AgentConfig.from_mapping({name: value}) == AgentConfig()
    assert name in caplog.text


def test_settings_come_from_the_environment_and_a_file(tmp_path: Path) -> None:
    given = {"LEADHAND_RESEARCH_MAX_RETRIES": "1", "LEADHAND_RESEARCH_ENABLE_CHECKPOINTS": "no"}
    config = AgentConfig.from_env(given)
    assert (config.max_retries, config.enable_checkpoints) == (1, False)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"timeout_seconds": 5}))
    assert AgentConfig.from_file(path).timeout_seconds == 5.0
    path.write_text("{")
    assert AgentConfig.from_file(path) == AgentConfig()


def test_configuration_is_read_from_yaml(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("max_retries: 7\nenable_checkpoints: no\nstrict_references: sometimes\n")
    found = AgentConfig.from_file(path)
    assert (found.max_retries, found.enable_checkpoints) == (7, False)
    assert "'strict_references' is ignored: it is 'sometimes'" in caplog.text
    path.write_text("!!python/object/apply:os.system ['true']\n")
    assert AgentConfig.from_file(path) == AgentConfig()
    assert "it is no YAML" in caplog.text
    path.write_text("- a\n")
    assert AgentConfig.from_file(path) == AgentConfig()
    assert "give a YAML mapping" in caplog.text


def test_yaml_without_its_parser_is_ignored_with_the_fix(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "agent.yml").write_text("max_retries: 7\n")
    assert AgentConfig.from_file(tmp_path / "agent.yml") == AgentConfig()
    assert "PyYAML is not installed; install it, or write the file as JSON" in caplog.text
