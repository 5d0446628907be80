"""Text from outside reaches neither a terminal nor a log with its control characters."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadhand.client.client import Client
from tests.integration.api.test_api_process import LOOP, TOKEN, running
from tests.waiting import wait_until

CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069]|\r(?!\n)"
)
HOSTILE = "a\x1b]52;c;cm0gLXJm\x07b\x1b[2Jc\x9b31md\x85e\u202ef\u2066g\u2028hi\x7fj\rk\x08l\u200em"
COMMANDS = [
    ["transcript", "ID"],
    ["transcript", "ID", "--markdown"],
    ["transcript", "ID", "--json"],
    ["show", "ID"],
    ["show", "ID", "--json"],
    ["explain", "ID"],
    ["ls"],
    ["ls", "--json"],
    ["logs", "ID"],
    ["logs", "ID", "--json"],
    ["watch", "ID"],
    ["wait", "ID"],
    ["wait", "ID", "--json"],
    ["export", "ID"],
    ["stop", "ID"],
    ["show", HOSTILE],
    [HOSTILE],
]


def leadhand(url: str, *arguments: str) -> str:
    """All that the real command writes."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from leadhand.cli import main; main()", *arguments],
        env={**os.environ, "LEADHAND_URL": url, "LEADHAND_TOKEN": TOKEN},
        capture_output=True,
        timeout=60,
        check=False,
    )
    text = (done.stdout + b"\n" + done.stderr).decode()
    assert "Traceback" not in text
    if "--json" in arguments:
        for line in (
            done.stdout.decode().split("\n")
            if arguments[0] in ("transcript", "logs")
            else [done.stdout.decode()]
        ):
            assert not line or json.loads(line) is not None
    return text


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_no_command_writes_control_characters_from_outside(tmp_path, store_url, broker_url):
    with running(tmp_path, store_url, LEADHAND_BROKER_URL=broker_url) as url:
        with Client(url, TOKEN) as client:
            texts = {"task": f"do {HOSTILE}", "label": f"name {HOSTILE}"}
            session = client.submit({**LOOP, **texts}).id
            client.abort(session, f"no {HOSTILE}")
        for command in COMMANDS:
            text = leadhand(url, *(word.replace("ID", session) for word in command))
            assert not CONTROLS.findall(text), (command, CONTROLS.findall(text))


@pytest.mark.parametrize("form", ["plain", "json"])
@pytest.mark.timeout(60)
def test_the_log_has_one_line_without_control_characters_for_each_request(
    form, tmp_path: Path, store_url, broker_url
):
    environment = {"LEADHAND_BROKER_URL": broker_url, "LEADHAND_LOG": form}
    with running(tmp_path, store_url, **environment) as url:
        parts = httpx2.URL(url)
        for target in (b"/a%1b%5b2J%0d%0aforged%20line%c2%9b%e2%80%ae", b"/b\x1b[2J\xc2\x9b"):
            with socket.create_connection((parts.host, parts.port or 80)) as connection:
                connection.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
                assert connection.recv(100)
        log_file = tmp_path / "log"
        wait_until(lambda: b"/a" in log_file.read_bytes())
        log = log_file.read_bytes().decode()
    assert not CONTROLS.findall(log)
    assert not [line for line in log.split("\n") if line.startswith("forged")]


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
@pytest.mark.slow
def test_whatever_a_command_prints_is_escaped_and_json_stays_the_same(text):
    printed = subprocess.run(
        [sys.executable, "-P", "-c", _PRINT],
        input=json.dumps(text).encode(),
        capture_output=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert not CONTROLS.findall(printed.stdout.decode())
    assert not CONTROLS.findall(printed.stderr.decode())
    assert json.loads(printed.stdout.decode().split("SPLIT")[0]) == text


_PRINT = """
import json, sys, click
from leadhand.cli.entrypoint import run

@click.command()
def command():
    text = json.loads(sys.stdin.read())
    click.echo(json.dumps(text, ensure_ascii=False))
    click.echo("SPLIT")
    click.echo(text)
    raise click.ClickException(text)

run(command, [])
"""


@pytest.mark.timeout(60)
@pytest.mark.slow
def test_a_credential_in_a_label_is_not_shown(tmp_path, store_url, broker_url):
    secret = "gl" + "pat-" + "abcdefghij0123456789"
    with running(tmp_path, store_url, LEADHAND_BROKER_URL=broker_url) as url:
        with Client(url, TOKEN) as client:
            session = client.submit({**LOOP, "label": f"with {secret}"}).id
            assert client.session(session).label == "with [redacted]"
        for command in (["show", session], ["ls"], ["ls", "--json"], ["transcript", session]):
            assert secret not in leadhand(url, *command)
