"""Bootstrap of API and worker processes: builds the engine with Celery as its transport."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from celery import Celery

from app.engine import Engine
from app.errors import SettingInvalid, StoreAway, StoreForbids
from app.settings import Settings
from app.store.store import Store, connect
from tasks.canvas import Canvas
from tasks.celery_app import make_celery
from tasks.steps import register


def check_logins(engine: Engine) -> None:
    """Raises an error if Redis or the broker refuses the login; unreachable servers are ignored.

    Raises StoreForbids.
    """
    with _without_outage():
        engine.store.ping()
    url = engine.settings.broker_url
    if url.startswith(("redis://", "rediss://", "unix://")):
        broker = Store(connect(url, tries=0))
        try:
            with _without_outage():
                broker.ping()
        except StoreForbids as error:
            raise StoreForbids(error.url, "LEADHAND_BROKER_URL") from error


@contextmanager
def _without_outage() -> Iterator[None]:
    """Ignore an unreachable Redis. Raises StoreForbids."""
    try:
        yield
    except StoreForbids:
        raise
    except StoreAway:
        pass


def make_engine(
    settings: Settings, *, tries: int = 3, timeout_s: float = 5.0
) -> tuple[Engine, Celery]:
    """Returns a process's engine (store and transitions) and Celery application, by its settings.

    Raises SettingInvalid without LEADHAND_REDIS_URL or LEADHAND_SECRET.
    """
    if not settings.redis_url:
        hint = "set it to the Redis that holds the state, or run `leadhand up` to start one"
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
