"""scripts/photographs.py finds each change of what users see, and passes over descriptions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.photographs import SURFACES, compare

ROOT = Path(__file__).resolve().parents[3]
#: By surface: a text in it, what replaces it, and a part of the line that says so.
CHANGES = [
    ("docs/openapi.json", '"/v1/sessions/{session}/skip"', '"/v1/pass"', "/paths//v1/pass"),
    ("docs/openapi.json", '"flaky": {', '"shaky": {', "/flaky/"),
    ("docs/cli.md", "  --limit INTEGER", "  --most INTEGER", "--limit INTEGER RANGE: is gone"),
    ("docs/cli.md", "[default: 50", "[default: 51", "was [default: 50"),
    ("docs/cli.md", "skip [OPTIONS] SESSION STEP", "skip", "leadhand skip: was"),
    ("docs/states.md", "`stopped`, `completed`", "`stopped`", "Sessions `stopping`: was"),
    ("tests/contract/problems.json", "Our own fault", "A fault", "/a fault/problem/title: was"),
    ("tests/contract/client.json", "reason: str | None = None", "reason: str", "/abort: was"),
    ("tests/contract/client.json", '"async (', '"(', "/AsyncClient/abort: was"),
    ("tests/contract/mcp_tools.json", '"maxLength": 10000', '"maxLength": 9', "was 10000, is 9"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "other", "line"), CHANGES)
def test_change_is_one_of_the_lines(name: str, text: str, other: str, line: str) -> None:
    before = (ROOT / name).read_text()
    read = SURFACES[name]
    assert not [*compare(read(before), read(before))]
    assert any(line in found for found in compare(read(before), read(before.replace(text, other))))


def test_names_are_gone_new_or_changed() -> None:
    lines = compare({"a": "1", "b": "2"}, {"b": "3", "c": "4"})
    assert [*lines] == ["a: is gone (was 1)", "b: was 2, is 3", "c: is new (4)"]


def page(**fields: Mapping[str, str]) -> str:
    return json.dumps({"description": "What it is.", "properties": fields})


def test_description_is_no_change_but_a_field_of_that_name_is_one() -> None:
    read = SURFACES["docs/openapi.json"]
    one, other = {"type": "string", "title": "A"}, {"type": "string", "title": "B"}
    assert not [*compare(read(page(x=one)), read(page(x=other)))]
    [line] = compare(read(page(x=one)), read(page(x=one, title=one)))
    assert line == '/properties/title/type: is new ("string")'


def test_help_text_is_no_change() -> None:
    read = SURFACES["docs/cli.md"]
    text = "## leadhand ls\nUsage: leadhand ls\n\n  {}\n\nOptions:\n  --limit N  {}  [default: 5]\n"
    assert read(text.format("A", "B")) == read(text.format("C", "D"))
    assert read(text.format("A", "B"))["leadhand ls --limit N"] == "[default: 5]"
