"""Dramatiq on the same Redis: pipelines and groups, with its own result backend.

``dramatiq benchmarks.dramatiq_tasks:BROKER`` is the worker; the URL is in BENCH_REDIS_URL. Names
are looked up at run time, so that the type check does not need the packages of `make bench`.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from redis import Redis

dramatiq: Any = importlib.import_module("dramatiq")
URL = os.environ.get("BENCH_REDIS_URL", "redis://127.0.0.1:6379")
#: The names of the loops whose work was accepted.
ACCEPTED = "dramatiq:accepted"


def _make_broker() -> Any:
    brokers = importlib.import_module("dramatiq.brokers.redis")
    results = importlib.import_module("dramatiq.results")
    backends = importlib.import_module("dramatiq.results.backends")
    limits = importlib.import_module("dramatiq.rate_limits.backends")
    middleware = importlib.import_module("dramatiq.middleware")
    broker = brokers.RedisBroker(url=URL)
    broker.add_middleware(results.Results(backend=backends.RedisBackend(url=URL)))
    broker.add_middleware(middleware.GroupCallbacks(limits.RedisBackend(url=URL)))
    dramatiq.set_broker(broker)
    return broker


BROKER = _make_broker()
_REDIS = Redis.from_url(URL)


def _noop(*_: object) -> None:
    return None


def _echo(number: int, *_: object) -> int:
    return number


def _check(iteration: int) -> bool:
    return iteration >= 3


def _do(name: str, iteration: int) -> None:
    """Work on an iteration, and send its checks and what follows them."""
    checks = [check.message(iteration) for _ in range(3)]
    group = dramatiq.group(checks)
    group.add_completion_callback(judge.message(name, iteration, [c.asdict() for c in checks]))
    group.run()


def _judge(name: str, iteration: int, checks: list[dict[str, Any]]) -> None:
    """Read the results of the checks; accept the work, or send the next iteration."""
    verdicts = [dramatiq.Message(**one).get_result() for one in checks]
    if all(verdicts):
        _REDIS.sadd(ACCEPTED, name)
    else:
        do.send(name, iteration + 1)


noop = dramatiq.actor(_noop, actor_name="noop")
echo = dramatiq.actor(_echo, actor_name="echo", store_results=True)
check = dramatiq.actor(_check, actor_name="check", store_results=True)
do = dramatiq.actor(_do, actor_name="do")
judge = dramatiq.actor(_judge, actor_name="judge")
