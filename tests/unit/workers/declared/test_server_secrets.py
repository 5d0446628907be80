"""Secrets of servers and requests stay out of states, logs and failures."""

from __future__ import annotations

import json
import logging
import subprocess
from pathlib import Path

import httpx2
import pytest

from tests.unit.workers.declared.tool_world import ToolWorld, why
from workers.registry.tool_entry import McpServer
from workers.tool_servers import client
from workers.tool_servers.egress import HeaderRefused, guarded_client
from workers.tool_servers.manager import _Client

KEY = "a-long-secret-key"
ENTRY = McpServer.model_validate({"command": "sh", "needs_env": ["SHOP_KEY"]}, strict=False)


@pytest.mark.parametrize("said", [KEY, KEY + "\n", "x" * 990 + KEY])
def test_why_a_server_is_away_hides_its_variables(tmp_path: Path, caplog, said: str) -> None:
    server = _Client("shop", ENTRY, tmp_path, tmp_path, ())
    server._held = {"SHOP_KEY": f"{KEY}\n"}
    with (
        caplog.at_level(logging.WARNING),
        subprocess.Popen(["printf", "%s", f"401 for {said}"], stdout=subprocess.PIPE) as process,
    ):
        server._ended(process)
    shown = server.state.read_text() + "".join(str(one.__dict__) for one in caplog.records)
    for _ in range(3):
        server._wait(f"401 for {said}")
    shown += server.state.read_text()
    assert "401 for" in shown
    assert KEY[:10] not in shown


def test_last_words_of_a_server_hide_its_variables(monkeypatch) -> None:
    monkeypatch.setenv("SHOP_KEY", KEY)
    words = client._LastWords()
    words._tail.append("y" * 1_990 + f" {KEY}")
    assert KEY[:5] not in words.text(ENTRY)


@pytest.mark.parametrize("value", ["two\nlines", "\x00", "h\u00e4", " space"])
def test_header_that_http_forbids_is_named_and_not_shown(value: str) -> None:
    with pytest.raises(HeaderRefused) as refused:
        guarded_client((), headers={"X-Key": value}, timeout_s=1)
    assert client.first_reason(ExceptionGroup("", [refused.value])) == (
        "header X-Key has characters that HTTP forbids"
    )
    quoted = httpx2.LocalProtocolError(f"Illegal header value {value!r}")
    assert "Illegal" not in client.first_reason(quoted)


def test_request_with_such_a_header_fails_without_its_value(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "first-line\nsecond-line")
    world = ToolWorld(tmp_path)
    entry = 'headers = {X-Key = "{SHOP_KEY}"}\nneeds_env = ["SHOP_KEY"]'
    world.write(f'[tools.ask]\nurl = "http://127.0.0.1:9/"\n{entry}\n')
    text = why(world.call("ask", hosts=("127.0.0.1:9",)))
    assert "header X-Key has characters that HTTP forbids" in text
    assert "line" not in json.dumps(text)
