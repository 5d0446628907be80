"""A span for each request, where traces are asked for; all but those that only ask how we are."""

from __future__ import annotations

from flask import Flask

from app.settings import Settings
from tasks import tracing

_NOT_TOLD = "healthz,readyz,metrics"


def begin(flask: Flask, settings: Settings) -> None:
    """Trace this process' requests, and what they send to workers."""
    tracing.begin(settings, "leadhand-api")
    if settings.traces == "off":
        return
    from opentelemetry.instrumentation.flask import FlaskInstrumentor

    instrumentor = FlaskInstrumentor()
    instrumentor.instrument_app(flask, excluded_urls=_NOT_TOLD)  # type: ignore[no-untyped-call]
