"""What `retry_on` of a step names is retried, whatever kind of tool it calls; nothing else is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from app.core.outcomes import Outcome
from app.core.program import RetryPolicy, apply_policy
from leadhand.models.verdicts import Reason, ReasonCode
from tests.unit.workers.declared.tool_servers import Servers
from tests.unit.workers.declared.tool_world import ToolWorld, web
from workers.registry.tool_book import ToolFiles
from workers.registry.tools import ToolCatalogue

SHOP = Path(__file__).with_name("mcp_shop.py")
TOOLS = """
[tools.missing]
url = "http://{host}/missing"
[tools.busy]
url = "http://{host}/busy"
[tools.moved]
url = "http://{host}/moved"
[tools.hangs]
url = "http://{host}/hang"
timeout_s = 0.5
[tools.gone]
url = "http://127.0.0.1:1/"
[tools.forbidden]
url = "http://10.0.0.1/"
[tools.exits]
command = ["sh", "-c", "exit 4"]
"""
FUNCTIONS = """
import asyncio
import os

def raises():
    raise FileNotFoundError("no such page")

def group():
    inner = ExceptionGroup("inner", [TimeoutError("late")])
    raise ExceptionGroup("two pages", [ConnectionRefusedError("away"), inner])

def gives_up():
    raise asyncio.CancelledError

def interrupts():
    raise KeyboardInterrupt

def ends():
    os._exit(7)

def declines():
    return {"success": False}
"""


Call = Callable[[str], Outcome]


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Call]:
    """Calls a tool in a step with retries, each once: tests look at its outcome."""
    folder = tmp_path_factory.mktemp("tools")
    (folder / "functions").mkdir()
    (folder / "functions" / "page.py").write_text(FUNCTIONS)
    world = ToolWorld(folder)
    world.shelf = ToolCatalogue(
        [folder / "functions"], declared=ToolFiles([folder / "agents.toml"])
    )
    with web() as host:
        world.write(TOOLS.format(host=host))
        yield cache(lambda tool: world.call(tool, hosts=(host, "127.0.0.1"), retries=1))


def is_retried(outcome: Outcome, *on: str) -> bool:
    assert outcome.word == "failed", outcome
    return apply_policy(RetryPolicy(retries=1, on=on), outcome).retryable


@pytest.mark.parametrize(("tool", "names", "others"), [
    ("missing", ["http 404", "http 4xx"], ["http 503", "http 5xx", "timeout"]),
    ("busy", ["http 503", "http 5xx"], ["http 404", "http 500", "ConnectionError"]),
    ("moved", ["http 302", "http 3xx"], ["http 4xx"]),
    ("hangs", ["timeout"], ["http 5xx", "ConnectionError"]),
    ("gone", ["ConnectionError", "OSError"], ["http 5xx", "timeout"]),
    ("forbidden", [], ["http 4xx", "ConnectionError", "timeout"]),
    ("exits", ["exit 4"], ["exit 5", "Exception", "timeout"]),
    ("page:raises", ["FileNotFoundError", "OSError"], ["ValueError", "timeout", "exit 1"]),
    ("page:group", ["ExceptionGroup"], ["ConnectionError", "TimeoutError"]),
    ("page:gives_up", ["CancelledError"], ["Exception"]),
    ("page:ends", ["exit 7"], ["Exception", "exit 4"]),
    ("page:declines", [], ["Exception", "exit 1"]),
])  # fmt: skip
def test_a_step_is_retried_on_the_errors_that_it_names(
    call: Call, tool: str, names: list[str], others: list[str]
) -> None:
    outcome = call(tool)
    assert {name: is_retried(outcome, name) for name in [*names, *others]} == {
        **dict.fromkeys(names, True),
        **dict.fromkeys(others, False),
    }
    if names:
        assert is_retried(outcome, *others, *names)


def test_exception_group_is_retried_if_each_of_its_members_is_named(call: Call) -> None:
    outcome = call("page:group")
    assert is_retried(outcome, "ConnectionError", "TimeoutError")
    assert is_retried(outcome, "OSError")
    assert not is_retried(outcome, "ConnectionError", "ValueError")
    assert outcome.reason is not None
    assert outcome.reason.text.splitlines()[0] == (
        "tool 'page:group' raised: ExceptionGroup: two pages (2 sub-exceptions):"
        " ConnectionRefusedError: away; TimeoutError: late"
    )


@pytest.mark.parametrize("tool", ["page:gives_up", "page:interrupts"])
def test_function_that_raises_no_ordinary_error_has_raised_it(call: Call, tool: str) -> None:
    error = {"page:gives_up": "asyncio.exceptions.CancelledError"}.get(tool, "KeyboardInterrupt")
    reason = call(tool).reason
    assert reason is not None
    assert reason.text.splitlines()[0] == f"tool {tool!r} raised: {error}"


@pytest.mark.parametrize(("tool", "retried"), [
    ("missing", False), ("busy", True), ("moved", False), ("hangs", True), ("gone", True),
    ("forbidden", False), ("exits", True), ("page:raises", True),
])  # fmt: skip
def test_a_step_that_names_no_error_is_retried_on_those_that_may_pass(
    call: Call, tool: str, retried: bool
) -> None:
    assert is_retried(call(tool)) is retried


def test_errors_of_an_mcp_server_are_retried_if_they_are_named(tmp_path: Path) -> None:
    world = ToolWorld(tmp_path)
    world.write(f'[mcp.shop]\ncommand = "{sys.executable}"\nargs = ["-P", "{SHOP}"]\n')
    servers = Servers(world)
    try:
        servers.ready()
        refused = servers.call("shop.refuse", why="no more paper", retries=1)
        late = servers.call("shop.hang", note=str(tmp_path / "note"), timeout_s=0.5, retries=1)
    finally:
        servers.running.stop()
    assert is_retried(refused)
    assert not is_retried(refused, "timeout", "ConnectionError")
    assert is_retried(late, "timeout")
    assert not is_retried(late, "ConnectionError")


def test_a_server_that_ends_during_a_call_is_a_connection_error(tmp_path: Path) -> None:
    world = ToolWorld(tmp_path)
    world.write(f'[mcp.shop]\ncommand = "{sys.executable}"\nargs = ["-P", "{SHOP}"]\n')
    servers = Servers(world)
    try:
        servers.ready("shop.die")
        gone = servers.call("shop.die", note=str(tmp_path / "note"), retries=1)
    finally:
        servers.running.stop()
    assert is_retried(gone, "ConnectionError")
    assert not is_retried(gone, "timeout")


def test_a_cancelled_call_is_not_retried_whatever_its_step_names() -> None:
    reason = Reason(code=ReasonCode.CANCELLED, text="cancelled")
    cancelled = Outcome(word="failed", reason=reason, exit_code=143, retryable=False)
    assert not is_retried(cancelled, "exit 143")
