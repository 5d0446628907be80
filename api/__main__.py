"""Serves the API as its environment configures it: `python -P -m leadhand.serve api`."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial

from flask import Flask, request

from api.application import create_app
from api.serving import Api
from api.wire.server import SPARE_THREADS, Server
from app.engine import Engine
from app.fleet.store_guard import check_secret
from app.logs import log_doubts, log_to_stderr
from app.settings import Settings, doubts
from app.store.identity import memory_of
from leadhand.errors import SchemaDiffers, SecretDiffers, SettingInvalid, StoreAway, StoreForbids
from leadhand.process_guard import hide
from tasks import tracing
from tasks.bootstrap import examine, make_engine, refusal
from tasks.periodic import ArtifactSweeper, Examiner, Pace, Prober, SecretRenewal, Sweeper
from tasks.tracing import check
from tasks.webhook_delivery import Deliverer

_EXCLUDED = "healthz,readyz,metrics"


def main() -> None:
    """Runs the API server that the environment configures; exits with a line on a bad setting."""
    hide()
    try:
        settings = Settings.from_env()
        check(settings)
        engine, _ = make_engine(settings)
        log_to_stderr(settings.log)
        log_doubts(doubts(settings))
        engine.guard.remember_in(memory_of(settings))
        log_doubts(examine(engine, scans=True))
        engine.guard.join = partial(check_secret, engine.store, settings)
        with suppress(StoreAway):  # each request and each sweep checks again
            engine.guard.check()
    except (SettingInvalid, StoreAway, StoreForbids, SchemaDiffers, SecretDiffers) as error:
        sys.exit(refusal("leadhand api", error))
    Server(
        lambda: build(settings, engine),
        bind=settings.api_bind,
        threads=settings.api_threads,
        processes=settings.api_processes,
    ).run()


def build(settings: Settings, engine: Engine) -> Api:
    """Builds the Flask application of one process, and starts its background threads."""
    pace = Pace(may_rest=settings.own_redis)
    Sweeper(engine, pace=pace).start()
    Deliverer(engine, pace=pace).start()
    Prober(engine, pace=pace).start()
    Examiner(engine, scans=True).start()
    SecretRenewal(engine).start()
    ArtifactSweeper(engine).start()
    api = create_app(settings, engine, streams=settings.api_threads - SPARE_THREADS)
    api.before_request(partial(_touch, pace))
    begin(api, settings)
    return api


def _touch(pace: Pace) -> None:
    """Note that a request may make work; those that only read do not."""
    if request.method not in ("GET", "HEAD"):
        pace.touch()


def begin(flask: Flask, settings: Settings) -> None:
    """Starts OpenTelemetry traces of this process's requests, unless the settings turn them off."""
    tracing.begin(settings, "leadhand-api")
    if settings.traces == "off":
        return
    from opentelemetry.instrumentation.flask import FlaskInstrumentor

    instrumentor = FlaskInstrumentor()
    instrumentor.instrument_app(flask, excluded_urls=_EXCLUDED)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
