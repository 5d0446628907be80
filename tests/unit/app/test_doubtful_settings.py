"""Misspelt variables and short secrets are named when a process starts."""

from __future__ import annotations

import pytest

from app.settings import Settings, doubts
from leadhand.cli.entrypoint import run
from leadhand.errors import SettingInvalid

LONG = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("env", "fix"),
    [
        ({"LEADHAND_API_THREADS": "many"}, "a whole number from 24 to 2048"),
        ({"LEADHAND_BUDGET_COST_USD": "0"}, "a number over 0, at most 1000000"),
        ({"LEADHAND_BUDGET_STEPS": "0"}, "a whole number of at least 1"),
        ({"LEADHAND_LOG": "xml"}, "'plain' or 'json'"),
        ({"LEADHAND_TOOL_HOSTS": "/b"}, "HOST or HOST:PORT"),
        ({"LEADHAND_OWN_REDIS": "maybe"}, "1, or unset it"),
    ],
)
def test_a_bad_value_is_refused_with_the_name_and_the_fix(env: dict[str, str], fix: str) -> None:
    [(name, value)] = env.items()
    with pytest.raises(SettingInvalid) as refused:
        Settings.from_env({**env, "HOME": "/home/me"})
    assert str(refused.value) == f"{name} is {value!r}: give {fix}"


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
