"""OpenTelemetry spans for requests, except for probes and metrics."""

from __future__ import annotations

from flask import Flask

from app.settings import Settings
from tasks import tracing

_EXCLUDED = "healthz,readyz,metrics"


def begin(flask: Flask, settings: Settings) -> None:
    """Starts OpenTelemetry traces of this process's requests, unless the settings turn them off."""
    tracing.begin(settings, "leadhand-api")
    if settings.traces == "off":
        return
    from opentelemetry.instrumentation.flask import FlaskInstrumentor

    instrumentor = FlaskInstrumentor()
    instrumentor.instrument_app(flask, excluded_urls=_EXCLUDED)  # type: ignore[no-untyped-call]
