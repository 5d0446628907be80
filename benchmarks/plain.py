"""Plain Celery on the same broker: chains and chords, without further state.

As a program it is the worker: ``python -P -m benchmarks.plain URL CONCURRENCY``. Settings are those
of our own worker (early acknowledgement, no prefetch, JSON, task events, prefork) but for the
result backend, which is Celery's own on the same Redis, and the transport, which is kombu's own:
where no sweep looks for lost messages, those in hand must be kept somewhere. A chain's results are
ignored, which is the fastest that a chain can be; a chord needs them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from celery import Celery, chain, chord
from celery.result import denied_join_result
from celery.signals import worker_process_init
from redis import Redis

from app.settings import Settings
from leadhand.process_guard import end_with_parent
from tasks.celery_app import make_celery

QUEUE = "plain"
#: Where the last task of each workflow notes how long it took, scored by when it ended.
DONE = "plain:done"


def make_app(url: str) -> Celery:
    """The application, for the worker and for who sends."""
    app = make_celery(Settings(redis_url=url, broker_url=url))
    app.conf.update(task_ignore_result=False, result_backend=url, task_default_queue=QUEUE)
    app.conf.broker_transport = "kombu.transport.redis:Transport"
    # The backend was chosen by its argument; plain Celery keeps its results in Redis.
    app.backend_cls = url
    redis = Redis.from_url(url)

    def done(name: str, began: float) -> None:
        redis.zadd(DONE, {name: time.time() - began})

    _in_a_row(app, done)
    _side_by_side(app, done)
    return app


def _in_a_row(app: Celery, done: Callable[[str, float], None]) -> None:
    @app.task(name="plain.noop", ignore_result=True)
    def noop() -> None:
        return None

    @app.task(name="plain.kept")
    def kept() -> None:
        return None

    @app.task(name="plain.echo")
    def echo(number: int) -> int:
        return number

    @app.task(name="plain.last", ignore_result=True)
    def last(name: str, began: float) -> None:
        done(name, began)

    @app.task(name="plain.last_kept")
    def last_kept(name: str, began: float) -> None:
        done(name, began)


def _side_by_side(app: Celery, done: Callable[[str, float], None]) -> None:
    @app.task(name="plain.check")
    def check(iteration: int) -> bool:
        return iteration >= 3

    @app.task(name="plain.judge", ignore_result=True)
    def judge(verdicts: list[bool], iteration: int, name: str, began: float) -> None:
        if all(verdicts):
            done(name, began)
        else:
            send_iteration(app, iteration + 1, name, began)

    @app.task(name="plain.total")
    def total(values: list[int]) -> int:
        return sum(values)

    @app.task(name="plain.joined", ignore_result=True)
    def joined(values: list[None], name: str, began: float) -> None:
        assert values is not None
        done(name, began)


def send_sequence(app: Celery, steps: int, name: str, *, kept: bool) -> None:
    """A chain of tasks; its last one says that it is done."""
    middle, end = ("plain.kept", "plain.last_kept") if kept else ("plain.noop", "plain.last")
    tasks = [app.signature(middle, immutable=True) for _ in range(steps - 1)]
    last = app.signature(end, args=(name, time.time()), immutable=True)
    with denied_join_result():  # the result is not read: the last task records the end
        chain(*tasks, last, app=app).apply_async()


def send_iteration(app: Celery, iteration: int, name: str, began: float | None = None) -> None:
    """A doer, three checks side by side, and a judge who sends the next iteration."""
    began = time.time() if began is None else began
    checks = [app.signature("plain.check", args=(iteration,), immutable=True) for _ in range(3)]
    judge = app.signature("plain.judge", args=(iteration, name, began))
    do = app.signature("plain.noop", immutable=True)
    with denied_join_result():
        chain(do, chord(checks, judge, app=app), app=app).apply_async()


def send_fan_out(app: Celery, width: int, name: str) -> None:
    """A chord: so many tasks side by side, and what joins them."""
    header = [app.signature("plain.kept", immutable=True) for _ in range(width)]
    body = app.signature("plain.joined", args=(name, time.time()))
    with denied_join_result():
        chord(header, body, app=app).apply_async()


def main(url: str, concurrency: int) -> int:
    """Work until TERM; the pool's processes are killed when this one dies."""
    host = os.getpid()
    worker_process_init.connect(lambda **_: end_with_parent(host), weak=False)
    worker = make_app(url).Worker(
        hostname="plain@bench",
        pool_cls="prefork",
        concurrency=concurrency,
        queues=[QUEUE],
        loglevel="WARNING",
        task_events=True,
        without_gossip=True,
        without_mingle=True,
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
