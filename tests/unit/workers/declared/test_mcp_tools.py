"""Tools of MCP servers: listed, checked, called, cancelled; servers that end are started again."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from leadhand.models.verdicts import ReasonCode
from tests.unit.workers.declared.tool_servers import Servers
from tests.unit.workers.declared.tool_world import ToolWorld, why
from tests.waiting import wait_until
from workers.registry.tool_entry import McpServer

SHOP = Path(__file__).with_name("mcp_shop.py")
STDIO = f"""
[mcp.shop]
command = "{sys.executable}"
args = ["-P", "{SHOP}"]
env = ["SHOP_NAME"]
"""


@pytest.fixture
def servers(tmp_path: Path, monkeypatch) -> Iterator[Servers]:
    monkeypatch.setenv("SHOP_NAME", "the corner shop")
    monkeypatch.setenv("SHOP_SECRET", "not passed on")
    world = ToolWorld(tmp_path)
    world.write(STDIO)
    servers = Servers(world)
    yield servers
    servers.running.stop()


def test_the_tools_of_a_server_are_listed_checked_and_called(servers: Servers) -> None:
    found = servers.ready()
    add = found["shop.add"]
    assert (add.kind, add.about) == ("mcp", "Adds two numbers.")
    assert [(p.name, p.annotation, p.required) for p in add.parameters] == [
        ("first", "integer", True), ("second", "integer", False),
    ]  # fmt: skip
    assert servers.call("shop.add", first="3", second=4).value == {"result": 7}
    done = servers.call("shop.hello", name="you")
    assert (done.value, done.text) == ("hello you", "hello you")
    assert "argument 'first': it is \"x\"" in why(servers.call("shop.add", first="x"))
    assert "server 'shop' has no tool 'sub'" in why(servers.call("shop.sub"))
    # The environment by name only.
    assert "the corner shop" in servers.call("shop.environment", name="SHOP_NAME").text
    assert "none" in servers.call("shop.environment", name="SHOP_SECRET").text
    # isError, and a result that says that it did not succeed.
    failed = servers.call("shop.refuse", why="no more paper")
    assert "reported a failure" in why(failed)
    assert "no more paper" in why(failed)
    assert "reported a failure: sold out" in why(servers.call("shop.decline"))
    # The list is refreshed when the server says that it changed.
    assert servers.call("shop.extend").word == "succeeded"
    servers.ready("shop.late")
    assert "here" in servers.call("shop.late").text


def test_a_text_that_is_json_is_a_value_if_the_entry_says_so(servers: Servers) -> None:
    servers.world.write(f'{STDIO}output = "json"\n')
    servers.ready()
    found = servers.call("shop.say", text='{"papers": ["one", "two"]}')
    assert found.value == {"papers": ["one", "two"]}
    assert servers.call("shop.say", text="").value is None
    assert servers.call("shop.say", text="no", structured=True).value == {"structured": True}
    declined = servers.call("shop.say", text='{"success": false, "error": "sold out"}')
    assert why(declined) == "tool 'shop.say' reported a failure: sold out"
    assert declined.value == {"success": False, "error": "sold out"}
    odd = servers.call("shop.say", text="three left")
    assert "tool 'shop.say' returned no JSON (Expecting value" in why(odd)
    assert why(odd).endswith(": three left")
    assert odd.reason is not None
    assert (odd.reason.code, odd.retryable) == (ReasonCode.INVALID_ANSWER, True)
    # A failure that the server reports is one, whatever its text.
    assert why(servers.call("shop.refuse", why="no paper")).endswith("failure: no paper")


def test_single_tools_of_a_server_return_json(servers: Servers) -> None:
    servers.world.write(f'{STDIO}output = {{say = "json"}}\n')
    servers.ready()
    assert servers.call("shop.say", text="[1]").value == [1]
    assert servers.call("shop.hello", name="you").value == "hello you"
    servers.world.write(f'{STDIO}output = {{say = "yaml"}}\n')
    wait_until(lambda: "output" in (servers.listed()["shop"].why_not or ""), timeout=20)
    assert 'shop.output: write "text" or "json"' in (servers.listed()["shop"].why_not or "")


def test_one_tool_of_a_server_differs_from_the_others() -> None:
    server = McpServer(command="shop", output={"*": "json", "hello": "text"})
    assert [server.form_of(tool) for tool in ("hello", "say")] == ["text", "json"]


def test_a_call_has_a_deadline_and_is_cancelled_at_the_server(servers: Servers) -> None:
    servers.ready()
    note = servers.world.folder / "note"
    late = servers.call("shop.hang", note=str(note), timeout_s=1.0)
    assert late.reason is not None
    assert late.reason.code is ReasonCode.TIMEOUT
    wait_until(lambda: note.read_text() == "called\ncancelled\n", timeout=20)
    note.unlink()
    cancel = threading.Event()
    asked = threading.Thread(target=_set_after_call, args=(cancel, note))
    asked.start()
    ended = servers.call("shop.hang", note=str(note), cancel=cancel)
    assert ended.reason is not None
    assert ended.reason.code is ReasonCode.CANCELLED
    wait_until(lambda: note.read_text() == "called\ncancelled\n", timeout=20)
    asked.join()
    assert servers.call("shop.hello", name="x").word == "succeeded"


def test_a_server_that_ends_in_a_call_is_started_again(servers: Servers) -> None:
    servers.ready()
    note = servers.world.folder / "note"
    failed = servers.call("shop.die", note=str(note))
    assert "server 'shop' ended during the call" in why(failed)
    assert failed.retryable
    assert note.read_text() == "called\n"
    # Until it runs again a call fails, and may be repeated.
    wait_until(lambda: "hello x" in servers.call("shop.hello", name="x").text, timeout=40)


@pytest.mark.slow
def test_a_tool_that_may_repeat_is_called_again_after_a_loss(servers: Servers) -> None:
    servers.ready()
    note = servers.world.folder / "note"
    assert "done" in servers.call("shop.die_safely", note=str(note)).text
    assert note.read_text() == "called\ncalled\n"
    lost = servers.call("shop.die", note=str(note), attempt=2)
    assert lost.reason is not None
    assert lost.reason.code is ReasonCode.LOST
    assert "done" in servers.call("shop.die_safely", note=str(note), attempt=2).text


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why_and_a_corrected_entry_starts(servers) -> None:
    servers.ready()
    servers.world.write('[mcp.shop]\ncommand = "no-such-program"\n')
    wait_until(lambda: "shop.add" not in servers.listed(), timeout=20)
    wait_until(lambda: "is not found" in (servers.listed()["shop"].why_not or ""), timeout=20)
    script = "import sys; sys.exit('the shop is closed')"
    servers.world.write(f'[mcp.shop]\ncommand = "{sys.executable}"\nargs = ["-c", "{script}"]\n')
    wait_until(lambda: "the shop is closed" in (servers.listed()["shop"].why_not or ""), timeout=30)
    servers.world.write(STDIO.replace("[mcp.shop]", "[mcp.shop]\ntools = ['add']"))
    assert "shop.hello" not in servers.ready()
    assert "server 'shop' has no tool 'hello'" in why(servers.call("shop.hello", name="x"))


def _set_after_call(cancel: threading.Event, note: Path) -> None:
    wait_until(note.exists, timeout=20)
    cancel.set()


@pytest.mark.slow
def test_no_process_is_left_after_the_end(servers: Servers) -> None:
    servers.ready()
    before = psutil.Process().children(recursive=True)
    assert any("mcp_shop.py" in " ".join(one.cmdline()) for one in before)
    servers.running.stop()
    wait_until(lambda: not any(_is_server(one) for one in before), timeout=20)


def _is_server(process: psutil.Process) -> bool:
    try:
        return process.is_running() and "mcp_shop.py" in " ".join(process.cmdline())
    except psutil.Error:
        return False


@pytest.mark.slow
def test_a_server_over_http_is_guarded_and_called(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "a-long-secret-key")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = ToolWorld(tmp_path)
    world.write(
        f'[mcp.shop]\nurl = "http://127.0.0.1:{port}/mcp"\nneeds_env = ["SHOP_KEY"]\n'
        'headers = {Authorization = "Bearer {SHOP_KEY}"}\n'
    )
    with subprocess.Popen([sys.executable, "-P", str(SHOP), str(port)]) as server:
        wait_until(lambda: _listens(port), timeout=30)
        refused = Servers(world)
        try:
            wait_until(
                lambda: "LEADHAND_TOOL_HOSTS" in (refused.listed()["shop"].why_not or ""),
                timeout=40,
            )
        finally:
            refused.running.stop()
        allowed = Servers(world, hosts=(f"127.0.0.1:{port}",))
        try:
            allowed.ready()
            assert allowed.call("shop.add", first=2, second=3).value == {"result": 5}
            note = tmp_path / "note"
            late = allowed.call("shop.hang", note=str(note), timeout_s=1.0)
            assert (late.word, note.read_text().splitlines()[0]) == ("failed", "called")
            assert allowed.call("shop.add", first=2, second=4).value == {"result": 6}
            server.kill()
            server.wait()
            failed = allowed.call("shop.add", first=2)
            assert "shop" in why(failed)
        finally:
            allowed.running.stop()
            server.kill()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_malformed_tool_takes_no_other_tool_away(servers: Servers) -> None:
    file = SHOP.with_name("mcp_odd.py")
    servers.world.write(f'[mcp.odd]\ncommand = "{sys.executable}"\nargs = ["-P", "{file}"]\n')
    found = servers.ready("odd.good")
    whys = {name: tool.why_not for name, tool in found.items() if tool.why_not is not None}
    assert [*whys] == ["odd.bare", "odd.tools[2]", "odd.tools[3]"]
    assert "malformed: tools[1].inputSchema: " in str(whys["odd.bare"])
    assert "malformed: tools[2].name: " in str(whys["odd.tools[2]"])
    assert servers.call("odd.good").text == servers.call("odd.fine").text == "done"
    assert "tools[1].inputSchema" in why(servers.call("odd.bare"))
