"""Checks before a worker's first step: the store, the fleet's secret and the worker's name."""

from __future__ import annotations

import logging
import socket
import time
from functools import partial

from pydantic import BaseModel

from app.engine import Engine
from app.errors import WorkerNameTaken
from app.operations.fleet_secret import check_secret
from leadhand.errors import SchemaDiffers, SecretDiffers, StoreAway, StoreForbids, StoreUnknown
from workers.host.name_lock import NameLock

log = logging.getLogger(__name__)

#: Seconds between two tries, and between two log lines about the same outage.
EVERY_S = 1.0
LOG_EVERY_S = 30.0


class Refusal(BaseModel):
    """Why a worker refused to start."""

    why: str
    at_ms: int


def join_fleet(engine: Engine, name: str) -> NameLock:
    """Wait for the store, check the fleet's secret and lock the worker's name.

    Raises SchemaDiffers, SecretDiffers, WorkerNameTaken, and records them for `leadhand doctor`.
    """
    engine.guard.join = partial(check_secret, engine.store, engine.settings)
    lock = NameLock(engine, name)
    try:
        wait_for_store(engine)
        lock.take()
    except (SchemaDiffers, SecretDiffers, WorkerNameTaken) as error:
        refusal = Refusal(why=str(error), at_ms=engine.store.now_ms())
        engine.store.fleet().record_refusal(_refusal_key(name, error), refusal.model_dump_json())
        raise
    engine.store.fleet().delete_refusals([_refusal_key(name, None)])
    return lock


def _refusal_key(name: str, error: Exception | None) -> str:
    """The worker's name, with its host if another worker has the name."""
    return f"{name} on {socket.gethostname()}" if isinstance(error, WorkerNameTaken) else name


def wait_for_store(engine: Engine) -> None:
    """Wait until Redis is reachable and holds the store that this worker expects or may adopt.

    The worker waits instead of exiting: its service manager would restart it again and again.
    """
    logged_s = -LOG_EVERY_S
    while True:
        try:
            engine.guard.check()
            return
        except StoreUnknown:
            pass  # the guard logs it, and repeats that from time to time
        except StoreForbids:
            raise
        except StoreAway as error:
            if time.monotonic() - logged_s >= LOG_EVERY_S:
                logged_s = time.monotonic()
                log.warning("worker waits for the store", extra={"why": str(error)})
        time.sleep(EVERY_S)
