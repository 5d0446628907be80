"""Tools that are HTTP requests: what is sent, what comes back, and where they may not go."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core.outcomes import Outcome
from leadhand.models.verdicts import ReasonCode
from tests.unit.workers.declared.tool_world import ToolWorld, Web, web, why
from tests.waiting import wait_until


class HttpWorld:
    def __init__(self, world: ToolWorld, host: str) -> None:
        self.world, self.host = world, host

    def ask(self, entry: str, *, path: str = "/", allowed: bool = True, **more) -> Outcome:
        self.world.write(f'[tools.ask]\nurl = "http://{self.host}{path}"\n{entry}\n')
        return self.world.call("ask", hosts=(self.host,) if allowed else (), **more)


@pytest.fixture
def http(tmp_path: Path) -> Iterator[HttpWorld]:
    with web() as host:
        yield HttpWorld(ToolWorld(tmp_path), host)


def test_process_of_a_request_imports_nothing_of_the_engine() -> None:
    code = "import workers.tools.http_request, sys; print({'celery', 'redis'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "set()\n"


def test_arguments_go_into_the_path_and_the_query(http: HttpWorld) -> None:
    done = http.ask("", path="/find/{topic}", topic="a/b ?", tag=["x", "y"], deep=True)
    assert done.value == {"found": [1, 2]}
    [(method, path, headers, _)] = Web.seen
    assert (method, path) == ("GET", "/find/a%2Fb%20%3F?tag=x&tag=y&deep=true")
    assert headers["Idempotency-Key"] == "ab12cd34:call"


def test_a_post_sends_json_or_a_form(http: HttpWorld) -> None:
    http.ask('method = "POST"', a=1, b=[None])
    http.ask('method = "POST"\nbody = "form"', a="x y")
    assert json.loads(Web.seen[0][3]) == {"a": 1, "b": [None]}
    assert Web.seen[1][3] == b"a=x+y"


def test_headers_take_variables_by_name_and_results_hide_their_values(http, monkeypatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "text/plain-secret")
    entry = 'headers = {Authorization = "Bearer {SHOP_KEY}"}\nneeds_env = ["SHOP_KEY"]'
    http.ask(entry)
    assert Web.seen[0][2]["Authorization"] == "Bearer text/plain-secret"


def test_success_false_is_a_result_unless_success_is_expected(http: HttpWorld) -> None:
    assert http.ask("", path="/declined").word == "succeeded"
    failed = http.ask("", path="/declined", expect="success")
    assert "did not report success: the shop is closed" in why(failed)


def test_a_text_and_an_unreadable_response(http: HttpWorld) -> None:
    assert http.ask("", path="/text").value == "plain words"
    assert "the response is no JSON" in why(http.ask("", path="/broken"))
    assert http.ask('output = "text"', path="/broken").value == "{"


@pytest.mark.parametrize(
    ("path", "status", "retryable"), [("/missing", 404, False), ("/busy", 503, True)]
)
def test_a_status_error_has_its_status(http: HttpWorld, path, status, retryable) -> None:
    failed = http.ask("", path=path)
    assert f"the server responded {status}: " in why(failed)
    assert isinstance(failed.value, dict)
    assert failed.value["status"] == status
    assert failed.retryable is retryable
    assert failed.errors == (f"http {status}",)


def test_a_redirect_is_not_followed(http: HttpWorld) -> None:
    failed = http.ask("", path="/moved")
    assert "the server redirects to http://127.0.0.1:1/elsewhere (302)" in why(failed)
    assert len(Web.seen) == 1


def test_a_large_response_is_refused(http: HttpWorld) -> None:
    assert "more than 4,194,304 bytes" in why(http.ask("", path="/large"))


def test_a_private_address_needs_to_be_allowed(http: HttpWorld) -> None:
    failed = http.ask("", allowed=False)
    assert "LEADHAND_TOOL_HOSTS" in why(failed)
    assert not failed.retryable
    assert Web.seen == []


def test_a_name_that_leads_to_a_private_address_is_refused(tmp_path: Path) -> None:
    world = ToolWorld(tmp_path)
    world.write('[tools.ask]\nurl = "https://localhost.localdomain:8443/"\n')
    text = why(world.call("ask"))
    assert "not, or not only, a public address" in text or "cannot be resolved" in text


def test_a_server_that_hangs_ends_at_the_deadline_and_by_a_cancel(http: HttpWorld) -> None:
    late = http.ask("timeout_s = 1.0", path="/hang")
    assert late.reason is not None
    assert late.reason.code is ReasonCode.TIMEOUT
    assert late.retryable
    cancel = threading.Event()
    Web.seen.clear()
    asked = threading.Thread(target=_set_after_request, args=(cancel,))
    asked.start()
    ended = http.ask("", path="/hang", cancel=cancel)
    asked.join()
    assert ended.reason is not None
    assert ended.reason.code is ReasonCode.CANCELLED


def _set_after_request(cancel: threading.Event) -> None:
    wait_until(lambda: len(Web.seen) > 0, timeout=20)
    cancel.set()


def test_a_server_that_is_gone_may_be_asked_again(tmp_path: Path) -> None:
    world = ToolWorld(tmp_path)
    world.write('[tools.ask]\nurl = "http://127.0.0.1:1/"\n')
    failed = world.call("ask", hosts=("127.0.0.1",))
    assert failed.retryable
    assert "failed:" in why(failed)


def test_a_part_of_the_path_cannot_climb(http: HttpWorld) -> None:
    assert "would change the path" in why(http.ask("", path="/x/{name}/y", name=".."))
