"""Traces for OpenTelemetry, where they are asked for: one leads from a request through its steps.

Messages carry the trace along. A step that the sweep had to hint again begins a trace of its own;
each span names its session, so that both are found. Where spans go is told by the variables of
OpenTelemetry itself, such as OTEL_EXPORTER_OTLP_ENDPOINT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from app.errors import SettingInvalid
from app.settings import Settings

#: Milliseconds between two sends: what a process has not sent by its end is lost.
_DELAY_MS = 1000


class _On:
    """Whether this process traces."""

    now = False


def check(settings: Settings) -> None:
    """Raises SettingInvalid where traces are asked for and cannot be had."""
    if settings.traces != "off" and not _is_there("opentelemetry.instrumentation.celery"):
        hint = "it needs more packages: pip install 'leadhand[otel]'"
        raise SettingInvalid("LEADHAND_TRACES", settings.traces, hint)


def begin(settings: Settings, service: str) -> Callable[[], None]:
    """Trace from now on, in this process; what to call before it ends. After a fork, not before."""
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


def is_on() -> bool:
    """Whether this process traces."""
    return _On.now


@contextmanager
def step(session: str, address: str, *, attempt: int) -> Iterator[None]:
    """A span for one attempt at a step."""
    if not _On.now:
        yield
        return
    from opentelemetry import trace

    ids: Mapping[str, str | int] = {
        "leadhand.session": session,
        "leadhand.step": address,
        "leadhand.attempt": attempt,
    }
    with trace.get_tracer("leadhand").start_as_current_span("step", attributes=ids):
        yield


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even what it would be in
        return False
