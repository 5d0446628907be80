"""Bootstrap of API and worker processes: builds the engine with Celery as its transport."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

from celery import Celery

from app.engine import Engine
from app.redis_url import SCHEMES
from app.settings import Settings
from app.store.errors import is_slow
from app.store.examination import Examination, Examined
from app.store.store import Store, connect
from leadhand.errors import LeadhandError, SettingInvalid, StoreAway, StoreForbids, StoreUnfit
from tasks.canvas import Canvas
from tasks.celery_app import make_celery
from tasks.steps import register

_BROKER = "LEADHAND_BROKER_URL"


def examine(engine: Engine, *, scans: bool = False) -> Sequence[str]:
    """Examines Redis and the broker, notes and returns warnings. `scans` is for an API.

    Raises StoreForbids or StoreUnfit for one that cannot be used; unreachable ones are ignored.
    """
    settings, warnings = engine.settings, tuple[str, ...]()
    with _without_outage(), _examination(settings.redis_url, settings.prefix) as state:
        found = state.state(scans=scans)
        _require_fit(found, settings.redis_url, "LEADHAND_REDIS_URL")
        warnings = found.warnings
    url = settings.broker_url
    if urlsplit(url).scheme in SCHEMES:
        is_same = _server_of(url) == _server_of(settings.redis_url)
        try:
            with _without_outage(), _examination(url) as broker:
                _require_fit(broker.broker(is_same=is_same), url, _BROKER)
        except StoreForbids as error:
            raise StoreForbids(error.url, _BROKER) from error
        except StoreUnfit as error:
            raise StoreUnfit(error.url, error.why, _BROKER) from error
    engine.troubles.redis_examined(None, warnings)
    return engine.troubles.warnings


def refusal(program: str, error: LeadhandError) -> str:
    """Returns the line of a process that ends at its start.

    It `cannot start` until something is changed: the supervisor of embedded services starts it no
    more. A Redis that does not answer may do so later.
    """
    is_away = isinstance(error, StoreAway) and not isinstance(error, StoreForbids | StoreUnfit)
    return f"{program} {'has no store' if is_away else 'cannot start'}: {error}"


@contextmanager
def _examination(url: str, prefix: str = "lh") -> Iterator[Examination]:
    with closing(Store(connect(url, tries=0, protocol=2), prefix=prefix)) as store:
        yield store.part(Examination)


def _require_fit(found: Examined, url: str, setting: str) -> None:
    if found.faults:
        raise StoreUnfit(_server_of(url), "; ".join(found.faults), setting)


def _server_of(url: str) -> str:
    """The location of a Redis, without its login."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path


@contextmanager
def _without_outage() -> Iterator[None]:
    """Ignore an unreachable Redis. Raises StoreForbids, StoreUnfit."""
    try:
        yield
    except StoreForbids:
        raise
    except StoreUnfit as error:
        if not is_slow(error):  # a server that is busy may be late with its TLS handshake
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
