"""One trace leads from a request through every step, at a collector of the test's own."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from app.settings import Settings
from leadhand.errors import SettingInvalid
from leadhand.local.processes import free_port
from tasks import tracing
from tests.fleet import Fleet
from tests.waiting import wait_until

HEADERS = {"Authorization": "Bearer token"}


class Collector(ThreadingHTTPServer):
    """Takes spans as OpenTelemetry sends them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.spans: list[Span] = []

    def step_spans(self) -> dict[str, Span]:
        """The spans of steps, by address."""
        steps = [span for span in self.spans if span.name == "step"]
        return {attributes(span)["leadhand.step"]: span for span in steps}


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        told = ExportTraceServiceRequest()
        told.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, Collector)
        for resource in told.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def attributes(span: Span) -> dict[str, str]:
    return {one.key: one.value.string_value for one in span.attributes}


class NotInstalled:
    """Finds nothing of OpenTelemetry, as where the extra is not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(name)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str, collector: Collector) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=10)
    fleet.env |= {
        "LEADHAND_TRACES": "otlp",
        "LEADHAND_API_TOKEN": "token",
        "LEADHAND_API_BIND": f"127.0.0.1:{free_port(0)}",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_address[1]}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
    }
    yield fleet
    fleet.close()


@pytest.fixture
def api(fleet: Fleet) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "leadhand.serve", "api"], cwd=fleet.folder, env=fleet.env
    )
    url = f"http://{fleet.env['LEADHAND_API_BIND']}"
    try:
        wait_until(lambda: _answers(url), timeout=20)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=20)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/readyz").is_success
    except httpx2.TransportError:
        return False


@pytest.mark.slow
def test_one_trace_from_the_request_through_every_step(
    fleet: Fleet, api: str, collector: Collector
) -> None:
    fleet.worker("one")
    document = {
        "kind": "loop",
        "task": "x",
        "doer": {"command": "true"},
        "baseline": False,
        "checkers": ["true"],
    }
    answer = httpx2.post(f"{api}/v1/sessions", json=document, headers=HEADERS)
    assert answer.status_code == 202
    session = answer.json()["id"]
    assert fleet.ended(session).verdict == "accept"
    addresses = {"loop~1[1]/do", "loop~1[1]/check.true", "loop~1[1]/judge"}
    wait_until(lambda: collector.step_spans().keys() >= addresses, timeout=15)
    steps = collector.step_spans()
    assert {attributes(span)["leadhand.session"] for span in steps.values()} == {session}
    wait_until(lambda: any(span.name == "POST /v1/sessions" for span in collector.spans))
    (request,) = (span for span in collector.spans if span.name == "POST /v1/sessions")
    assert {span.trace_id for span in steps.values()} == {request.trace_id}
    assert "run/leadhand.agent" in {span.name for span in collector.spans}
    assert not [span for span in collector.spans if "readyz" in span.name]


def test_traces_that_cannot_be_had_are_refused_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(traces="otlp")
    tracing.check(settings)
    monkeypatch.setattr(sys, "meta_path", [NotInstalled(), *sys.meta_path])
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SettingInvalid, match=r"leadhand\[otel\]"):
        tracing.check(settings)
