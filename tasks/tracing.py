"""OpenTelemetry traces (optional): a trace connects a request with its steps.

Messages carry the trace context. A step that the sweep hinted again starts a trace of its own; each
span names its session, by which both are found. The exporter is configured by OpenTelemetry's own
variables, such as OTEL_EXPORTER_OTLP_ENDPOINT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec

from app.settings import Settings
from leadhand.errors import SettingInvalid

#: Milliseconds between two exports; unsent spans are lost when the process dies.
_DELAY_MS = 1000
_NO_SPAN = nullcontext()


class _On:
    """Whether this process traces."""

    now = False


def check(settings: Settings) -> None:
    """Raises SettingInvalid if traces are enabled and their packages are not installed."""
    if settings.traces != "off" and not _is_there("opentelemetry.instrumentation.celery"):
        hint = "it needs more packages: pip install 'leadhand[otel]'"
        raise SettingInvalid("LEADHAND_TRACES", settings.traces, hint)


def begin(settings: Settings, service: str) -> Callable[[], None]:
    """Starts tracing in this process; returns the function to call before the process ends."""
    if settings.traces == "off":
        return lambda: None
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.celery import CeleryInstrumentor
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    spans = BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=_DELAY_MS)
    provider.add_span_processor(spans)
    trace.set_tracer_provider(provider)
    CeleryInstrumentor().instrument()  # type: ignore[no-untyped-call]
    _On.now = True
    return provider.shutdown


def step(session: str, address: str, *, attempt: int) -> AbstractContextManager[object]:
    """Opens a tracing span for one attempt at a step; does nothing if tracing is off."""
    if not _On.now:
        return _NO_SPAN
    from opentelemetry import trace

    ids: Mapping[str, str | int] = {
        "leadhand.session": session,
        "leadhand.step": address,
        "leadhand.attempt": attempt,
    }
    return trace.get_tracer("leadhand").start_as_current_span("step", attributes=ids)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
