"""`python -P -m api`: serves the API as the environment says, until it is told to stop."""

from __future__ import annotations

import sys

from api import tracing
from api.application import Api, create_app
from api.server import SPARE_THREADS, Server
from app.engine import Engine
from app.errors import SettingInvalid
from app.logs import log_to_stderr
from app.parent import hide
from app.settings import Settings
from tasks.deliver import Deliverer
from tasks.sweep import Sweeper
from tasks.tracing import check
from tasks.wiring import make_engine


def main() -> None:
    """Serve. A setting that cannot be used is told in one line."""
    hide()
    try:
        settings = Settings.from_env()
        check(settings)
        engine, _ = make_engine(settings)
    except SettingInvalid as error:
        sys.exit(f"leadhand api: {error}")
    log_to_stderr(settings.log)
    Server(
        lambda: build(settings, engine),
        bind=settings.api_bind,
        threads=settings.api_threads,
        processes=settings.api_processes,
    ).run()


def build(settings: Settings, engine: Engine) -> Api:
    """What one process serves, with the sweeper and the deliverer beside it."""
    Sweeper(engine).start()
    Deliverer(engine).start()
    api = create_app(settings, engine, streams=settings.api_threads - SPARE_THREADS)
    tracing.begin(api, settings)
    return api


if __name__ == "__main__":
    main()
