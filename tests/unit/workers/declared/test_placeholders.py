"""Command lines of declared tools: no value becomes an option or takes another's place."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from workers.registry.tool_entry import OptionRefused, argv_of


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (("tar", "-xf", "{name}.tar"), {"name": "--to-command=sh x"}),
        (("tar", "{a}{b}"), {"a": "-", "b": "x"}),
        (("tar", "{a}{b}"), {"a": "", "b": "-x"}),
        (("tar", "{a}"), {"a": "--"}),
        (("tar", "{a}", "--", "x"), {"a": "-x"}),
        (("tar", "{a}"), {"a": ["x", "-y"]}),
    ],
)
def test_value_that_makes_an_option_is_refused(
    command: tuple[str, ...], arguments: dict[str, JsonValue]
) -> None:
    with pytest.raises(OptionRefused, match='would take for an option; write "--" before'):
        argv_of(command, arguments)


@pytest.mark.parametrize(
    ("command", "arguments", "line"),
    [
        (("tar", "--", "{a}.tar"), {"a": "-x"}, ("tar", "--", "-x.tar")),
        (("head", "--lines={n}"), {"n": "-3"}, ("head", "--lines=-3")),
        (("seq", "{n}"), {"n": -3}, ("seq", "-3")),
        (("tar", "-C", "{folder}", "--exclude", "x"), {}, ("tar", "--exclude", "x")),
        (("tar", "-C", "{folder}", "x"), {"folder": []}, ("tar", "x")),
        (("tar", "-v", "x", "{folder}"), {}, ("tar", "-v", "x")),
        (("tar", "--a=b", "{folder}"), {}, ("tar", "--a=b")),
        (("tar", "--", "-x", "{folder}"), {}, ("tar", "--", "-x")),
        (("tar", "-C", "{a}", "{b}"), {"b": "x"}, ("tar", "x")),
    ],
)
def test_command_line(
    command: tuple[str, ...], arguments: dict[str, JsonValue], line: tuple[str, ...]
) -> None:
    assert argv_of(command, arguments) == line
