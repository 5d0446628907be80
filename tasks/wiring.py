"""Puts the engine together with Celery as its carrier: how an API or worker process begins."""

from __future__ import annotations

from celery import Celery

from app.engine import Engine
from app.errors import SettingInvalid
from app.settings import Settings
from app.store import Store, connect
from tasks.canvas import Canvas
from tasks.celery_app import make_celery
from tasks.steps import register


def make_engine(
    settings: Settings, *, tries: int = 3, timeout_s: float = 5.0
) -> tuple[Engine, Celery]:
    """The engine and the Celery application of a process.

    Raises SettingInvalid without a Redis, or without the secret that says what may run.
    """
    if not settings.redis_url:
        hint = "set it to the Redis that holds the state, or run `leadhand up` for an own one"
        raise SettingInvalid("LEADHAND_REDIS_URL", "", hint)
    if not settings.secret:
        hint = "set the same long random text for each API and worker: openssl rand -hex 32"
        raise SettingInvalid("LEADHAND_SECRET", "", hint)
    celery = make_celery(settings)
    register(celery)
    store = Store(
        connect(settings.redis_url, tries=tries, timeout_s=timeout_s), prefix=settings.prefix
    )
    return Engine(store, Canvas(celery), settings), celery
