"""Misspelt variables and short secrets are named when a process starts."""

from __future__ import annotations

import pytest

from app import settings as server
from app.settings import Settings, doubts
from leadhand import settings as client
from leadhand.cli.entrypoint import run
from leadhand.models import variables

LONG = "0123456789abcdef" * 4


def test_the_list_of_variables_is_what_the_settings_read() -> None:
    names = {*server._PLAIN.values(), *server._PATHS.values(), *server._LISTS.values()}
    assert {f"LEADHAND_{name}" for name in variables.SERVER} == names
    both = {f"LEADHAND_{name}" for name in (*variables.CLIENT, *variables.SERVER)}
    assert set(client._NAMES.values()) <= both


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LEADHAND_CONCURENCY", "LEADHAND_CONCURRENCY"),
        ("LEADHAND_REDISURL", "LEADHAND_REDIS_URL"),
        ("LEADHAND_RETENTION", "LEADHAND_RETENTION_S"),
        ("leadhand_url", "LEADHAND_URL"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_one_that_is_meant(name: str, meant: str) -> None:
    assert list(doubts(Settings(), {name: "1"})) == [
        f"{name} is not a setting; did you mean {meant}?"
    ]


def test_variables_of_others_are_left_alone() -> None:
    env = {"LEADHAND_TEST_SERVERS": "", "LEADHAND_DEPLOYED_BY": "ci", "REDIS_URL": "x"}
    assert list(doubts(Settings(), env)) == []


def test_a_short_secret_is_named_and_not_shown() -> None:
    settings = Settings(secret="hunter2", secret_other=LONG, api_token="pw")
    found = list(doubts(settings, {}))
    assert [text.split()[:3] for text in found] == [
        ["LEADHAND_SECRET", "has", "7"],
        ["LEADHAND_API_TOKEN", "has", "2"],
    ]
    assert "hunter2" not in "".join(found)
    assert list(doubts(Settings(secret=LONG, api_token=LONG), {})) == []


def test_a_command_names_a_misspelt_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from leadhand.cli import cli

    monkeypatch.setenv("LEADHAND_HOMME", "/x")
    assert run(cli, ["--version"]) == 0
    said = "leadhand: LEADHAND_HOMME is not a setting; did you mean LEADHAND_HOME?\n"
    assert capsys.readouterr().err == said
