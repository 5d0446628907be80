"""Every block of the documentation is executed, validated, or says why it is not."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leadhand.flows.documents import FlowDefinition
from leadhand.flows.faults import all_faults
from leadhand.graphs.documents import GraphDocument
from leadhand.models.documents import LoopDocument, WorkflowDocument
from leadhand.models.plans import PlanDocument
from leadhand.models.views.step import Event
from tests.documentation import DIRECTIVES, EXECUTED, PAGES, ROOT, SHOWN, Block, blocks, parsed

ALL = [block for page in PAGES for block in blocks(page)]


def as_loop(document: dict[str, Any]) -> None:
    LoopDocument.model_validate(document)


def as_workflow(document: dict[str, Any]) -> None:
    WorkflowDocument.model_validate(document)


def as_plan(document: dict[str, Any]) -> None:
    PlanDocument.model_validate(document)


def as_graph(document: dict[str, Any]) -> None:
    GraphDocument.model_validate(document)


def as_flow(document: dict[str, Any]) -> None:
    assert all_faults(FlowDefinition, document).faults == []


def as_event(document: dict[str, Any]) -> None:
    Event.model_validate(document)


def validator(document: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Return the check for a JSON document, recognised by its fields."""
    if "kind" in document:
        return {"loop": as_loop, "workflow": as_workflow, "plan": as_plan}[document["kind"]]
    if "steps" in document:
        is_graph = all("type" not in step for step in document["steps"])
        return as_graph if is_graph else as_flow
    if "at_ms" in document:
        return as_event
    raise AssertionError("no model is known for this document: add one here, or mark the block")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_fence_is_a_block_of_a_known_language(page: Path) -> None:
    fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)
    found = list(blocks(page))
    assert len(fences) == 2 * len(found)
    unknown = [block.place for block in found if block.language not in EXECUTED | SHOWN]
    assert unknown == [], "name the language after the fence"


@pytest.mark.parametrize("block", ALL, ids=lambda block: block.place)
def test_comments_before_a_block_are_directives_with_values(block: Block) -> None:
    assert set(block.directives) <= DIRECTIVES
    assert "not run" not in block.directives or len(block.directives["not run"].split()) > 1


@pytest.mark.parametrize("block", [b for b in ALL if "file" in b.directives], ids=lambda b: b.place)
def test_readers_see_the_name_of_a_file_that_they_save(block: Block) -> None:
    shown = re.sub(r"<!--.*?-->", "", (ROOT / block.page).read_text(encoding="utf-8"))
    assert Path(block.directives["file"]).name in shown


@pytest.mark.parametrize(
    "comment", ["<!-- before: touch good.txt -->", "<!-- env: CLONE=. -->", "<!-- prepare -->"]
)
def test_a_page_cannot_prepare_what_readers_do_not_see(comment: str) -> None:
    [block] = parsed(f"{comment}\n```sh\ntrue\n```\n", ROOT / "README.md")
    with pytest.raises(AssertionError):
        test_comments_before_a_block_are_directives_with_values(block)


@pytest.mark.parametrize(
    "block", [b for b in ALL if b.language == "json" and b.is_executed], ids=lambda b: b.place
)
def test_json_block_is_valid_for_its_model(block: Block) -> None:
    document = json.loads(block.text)
    validator(document)(document)


@pytest.mark.parametrize(
    "document", [{"kind": "loop"}, {"steps": [{"type": "nonsense"}]}, {"anything": 1}]
)
def test_a_wrong_json_block_would_be_noticed(document: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        validator(document)(document)


@pytest.mark.parametrize(
    ("comment", "is_executed"),
    [("", True), ("<!-- exit code: 3 -->\n", True), ("<!-- not run: needs a cluster -->\n", False)],
)
def test_a_block_is_executed_unless_a_comment_says_why_not(comment: str, is_executed: bool) -> None:
    page = ROOT / "README.md"
    [block] = parsed(f"# Title\n\n{comment}```sh\ntrue\n```\n", page)
    assert block.is_executed == is_executed


@pytest.mark.parametrize("path", json.loads((ROOT / "docs/openapi.json").read_text())["paths"])
def test_reference_has_every_route(path: str) -> None:
    shown = path.replace("{session}", "ID").replace("{agent}", "AGENT").split("{")[0].rstrip("/")
    assert shown in (ROOT / "docs/api.md").read_text(encoding="utf-8")


def test_reference_has_every_field_of_a_loop_and_every_type_of_event() -> None:
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    scripts = "".join(one.read_text() for one in (ROOT / "app/store/lua").rglob("*.lua"))
    types = set(re.findall(r"emit\(tx, '([a-z]+\.[a-z_]+)'", scripts))
    assert len(types) > 20
    assert [name for name in {*LoopDocument.model_fields, *types} if f"`{name}`" not in text] == []


#: As many words in a row are no turn of phrase: what has them twice was merged or copied.
_COPIED_WORDS = 10
_TABLE = re.compile(r"(?:^ *\|[^\n]*\n)+", re.MULTILINE)
#: What is no prose: fenced blocks, comments and tables.
_NO_PROSE = re.compile(rf"^ *```.*?^ *```$|<!--.*?-->|{_TABLE.pattern}", re.DOTALL | re.MULTILINE)


def repeated_words(text: str) -> set[str]:
    """Return the words in a row that the prose of a page has twice."""
    words = re.findall(r"[\w'/.-]*\w", _NO_PROSE.sub("", text).lower())
    rows = [" ".join(row) for row in zip(*(words[n:] for n in range(_COPIED_WORDS)), strict=False)]
    return {row for row, count in Counter(rows).items() if count > 1}


def repeated_rows(text: str) -> set[str]:
    """Return the first cells that two rows of one table have."""
    repeated: set[str] = set()
    for table in _TABLE.findall(text):
        cells = Counter(row.split("|")[1].strip() for row in table.splitlines()[2:])
        repeated |= {cell for cell, count in cells.items() if cell and count > 1}
    return repeated


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_no_sentence_or_row_of_a_page_is_there_twice(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert (repeated_words(text), repeated_rows(text)) == (set(), set())


#: A sentence of as many words in two pages is kept true in one of them only.
_SHARED_WORDS = 15
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n\n|^ *[-#]+ ", re.MULTILINE)


def sentences(text: str) -> set[str]:
    """Return the long sentences of a page's prose, as their words."""
    parts = _SENTENCE_END.split(_NO_PROSE.sub("\n\n", text).lower())
    words = [re.findall(r"[\w'/.-]*\w", part) for part in parts]
    return {" ".join(part) for part in words if len(part) >= _SHARED_WORDS}


def test_no_sentence_is_in_two_pages() -> None:
    pages: dict[str, str] = {}
    shared: list[tuple[str, str, str]] = []
    for page in PAGES:
        name, text = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
        found = [(one, pages.setdefault(one, name), name) for one in sentences(text)]
        shared += [each for each in found if each[1] != name]
    assert shared == []


def test_a_sentence_that_a_merge_left_twice_would_be_noticed() -> None:
    before = "A token of a body is valid during its attempt. It reads\nits session."
    after = "A token of a body is valid during its attempt, and reports."
    assert repeated_words(f"{before}\n{after}\n")
    assert not repeated_words(f"{before}\n```sh\n{after}\n```\n")


def test_a_row_that_a_merge_left_twice_would_be_noticed() -> None:
    table = "| name | text |\n|---|---|\n| `A` | one |\n| `B` | two |\n| `A` | another |\n"
    assert repeated_rows(table) == {"`A`"}


@pytest.mark.parametrize(
    "command",
    [
        line
        for block in ALL
        for line in block.text.splitlines()
        if block.language == "sh" and line.startswith(".venv/bin/pytest")
    ],
)
def test_tests_that_the_documentation_names_exist(command: str) -> None:
    paths = re.findall(r"tests/\S+\.py", command)
    assert paths
    names = " ".join((ROOT / path).read_text(encoding="utf-8") for path in paths)
    wanted = re.findall(r'-k "?([\w ]+)"?', command)
    for word in wanted[0].split(" or ") if wanted else ():
        assert re.search(rf"def test_\w*{word}", names), f"no test is named {word}"
