"""Flows on disk: read anew as they change, and a broken one disturbs no other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.compiler.flow import compile_flow
from app.errors import InvalidDocument
from app.fleet.flow_catalog import Catalog, hash_of
from leadhand.errors import FlowDisabled, FlowUnknown
from leadhand.flows.file_reading import faults_in_file
from tests.flows import flow, llm


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flows").mkdir()
    (tmp_path / "commands").mkdir()
    return tmp_path / "flows"


def write(folder: Path, name: str, *steps: dict[str, Any], **more: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"steps": steps, **more}))


def runs(*names: str) -> dict[str, Any]:
    return {"type": "subflow", "flowNames": list(names)}


def command(name: str) -> dict[str, Any]:
    return {"type": "command", "agentType": "a", "identifier": "i", "commandName": name}


def test_no_folder_means_no_flows(tmp_path: Path) -> None:
    assert Catalog((tmp_path / "absent",)).flows() == []
    with pytest.raises(FlowUnknown, match=r"save it as flows/x\.json, or set LEADHAND_FLOWS"):
        Catalog(()).flow("x")
    with pytest.raises(FlowUnknown, match=r"'x' is not found in .*/absent: no flow is there"):
        Catalog((tmp_path / "absent",)).flow("x")


def test_an_unknown_flow_says_where_it_was_searched_and_what_is_there(folder: Path) -> None:
    for number in range(11):
        write(folder, f"flow-{number:02}", llm())
    with pytest.raises(FlowUnknown) as refused:
        Catalog((folder,)).document("nope")
    assert str(folder) in str(refused.value)
    assert str(refused.value).endswith("flow-08, flow-09 and 1 more")


def test_a_broken_file_is_listed_as_disabled_and_disturbs_no_other(folder: Path) -> None:
    write(folder, "good", llm(), description="a good one")
    (folder / "broken.json").write_text("{")
    (folder / "odd name.json").write_text("{}")
    (folder / "notes.txt").write_text("no flow")
    (folder / "folder.json").mkdir()
    found = {flow.name: flow for flow in Catalog((folder,)).flows()}
    assert {name: flow.disabled for name, flow in found.items()} == {
        "good": False, "broken": True, "odd name": True, "folder": True,
    }  # fmt: skip
    assert found["good"].description == "a good one"
    assert str(found["broken"].error).startswith("broken.json: it is not valid JSON")
    with pytest.raises(FlowDisabled, match="not valid JSON"):
        Catalog((folder,)).document("broken")


def test_a_changed_file_is_read_anew(folder: Path) -> None:
    catalog = Catalog((folder,))
    write(folder, "x", llm(), description="one")
    first = catalog.flow("x")
    write(folder, "x", llm(), description="two")
    second = catalog.flow("x")
    assert (first.description, second.description) == ("one", "two")
    assert first.hash != second.hash
    (folder / "x.json").write_text("[]")
    assert catalog.flow("x").disabled
    (folder / "x.json").unlink()
    with pytest.raises(FlowUnknown):
        catalog.flow("x")


def test_the_hash_tells_of_what_a_flow_needs_too(folder: Path) -> None:
    catalog = Catalog((folder,))
    write(folder, "outer", runs("inner"), command("c"))
    write(folder, "inner", llm())
    said = folder.parent / "commands/c.md"
    said.write_text("say")
    seen = [catalog.one("outer").hash, catalog.one("outer").hash]
    assert seen[0] == seen[1] != ""
    said.write_text("say more")
    seen.append(catalog.one("outer").hash)
    write(folder, "inner", llm("other"))
    seen.append(catalog.one("outer").hash)
    assert len(set(seen)) == 3


def markdown(path: str) -> dict[str, Any]:
    return {"type": "llm", "agentType": "a", "identifier": "i", "markdownFile": path}


def test_a_markdown_file_is_taken_along_and_told_by_the_hash(folder: Path) -> None:
    catalog = Catalog((folder,))
    write(folder, "outer", runs("inner"))
    write(folder, "inner", markdown("prompts/a.md"))
    assert "inner: steps[0].markdownFile: 'prompts/a.md': there is no such file" in str(
        catalog.flow("outer").error
    )
    (folder / "prompts").mkdir()
    (folder / "prompts/a.md").write_text("Say ${inputs.x}")
    assert "prompts/a.md: messages[0].content[0]: 'Say ${inputs.x}': it uses the input" in str(
        catalog.flow("inner").error
    )
    (folder / "prompts/a.md").write_text("Say one")
    began = catalog.document("outer")
    program = compile_flow(began)
    (folder / "prompts/a.md").write_text("Say two")
    now = catalog.document("outer")
    assert hash_of(began) != hash_of(now)
    assert began.markdown["prompts/a.md"][0].content == ("Say one",)
    assert compile_flow(began) == program != compile_flow(now)
    assert "Say one" in program.model_dump_json()


def test_a_markdown_file_does_not_lead_out_of_its_folder(folder: Path) -> None:
    (folder.parent / "secret.md").write_text("the word")
    (folder / "a.md").symlink_to(folder.parent / "secret.md")
    write(folder, "x", markdown("a.md"))
    assert "x.json: steps[0].markdownFile: 'a.md': a.md: a link leads out" in str(
        Catalog((folder,)).flow("x").error
    )


def test_the_hash_of_a_flow_without_such_files_is_as_it_was(folder: Path) -> None:
    write(folder, "x", llm())
    assert hash_of(Catalog((folder,)).document("x")) == "48abf2f7971786c3"


def test_the_hash_tells_of_the_budget(folder: Path) -> None:
    catalog = Catalog((folder,))
    hashes = set()
    for budget in ({}, {"steps": 5}, {"steps": 6}):
        write(folder, "x", llm(), budget=budget)
        hashes.add(hash_of(catalog.document("x")))
    assert len(hashes) == 3


def test_what_a_flow_needs_and_is_not_there_disables_it(folder: Path) -> None:
    catalog = Catalog((folder,))
    write(folder, "outer", llm(), runs("inner"))
    assert "steps[1].flowNames: 'inner': it is not found in" in str(catalog.flow("outer").error)
    write(folder, "inner", command("c"))
    assert "inner: steps[0].commandName: 'c'" in str(catalog.flow("outer").error)
    (folder.parent / "commands/c.json").write_text("{}")
    assert "commands/c.json: messages: it is missing" in str(catalog.flow("outer").error)
    (folder.parent / "commands/c.json").unlink()
    (folder.parent / "commands/c.md").write_text("say")
    assert not catalog.flow("outer").disabled
    (folder / "inner.json").write_text("[]")
    assert "it is disabled: inner.json" in str(catalog.flow("outer").error)


@pytest.mark.parametrize("said", ["write ${inputs.nothing}", "${steps.nowhere}"])
def test_a_command_that_asks_for_what_its_flow_has_not_disables_it(folder: Path, said: str) -> None:
    message = {"role": "user", "content": ["first", said]}
    (folder.parent / "commands/c.json").write_text(json.dumps({"items": [message]}))
    write(folder, "inner", llm(label="plan"), command("c"), inputs={"what": "tests"})
    write(folder, "outer", runs("inner"))
    for found in Catalog((folder,)).flows():
        assert found.disabled
        assert "commands/c: messages[0].content[1]" in str(found.error)
        assert said in str(found.error)


def test_a_command_may_ask_for_what_its_flow_has(folder: Path) -> None:
    message = {"role": "user", "content": ["write ${inputs.what}", "${steps.plan}"]}
    (folder.parent / "commands/c.json").write_text(json.dumps({"items": [message]}))
    write(folder, "x", llm(label="plan"), command("c"), inputs={"what": "tests"})
    assert [found.error for found in Catalog((folder,)).flows()] == [None]


def test_a_pipe_among_the_files_holds_nobody_up(folder: Path) -> None:
    write(folder, "good", llm())
    os.mkfifo(folder / "pipe.json")
    (folder / "device.json").symlink_to("/dev/zero")
    found = {flow.name: flow for flow in Catalog((folder,)).flows()}
    assert not found["good"].disabled
    for name in ("pipe", "device"):
        assert "not a regular file" in str(found[name].error)


def test_flows_that_run_each_other_are_refused(folder: Path) -> None:
    write(folder, "a", runs("b"))
    write(folder, "b", runs("c"))
    write(folder, "c", runs("a"))
    assert "a -> b -> c -> a" in str(Catalog((folder,)).flow("a").error)


def test_the_first_folder_is_meant(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other/flows"
    other.mkdir(parents=True)
    write(folder, "x", llm(), description="first")
    write(other, "x", llm(), description="second")
    write(other, "y", llm())
    found = Catalog((folder, other)).flows()
    assert [(f.name, f.description) for f in found] == [("x", "first"), ("y", "")]


def test_what_a_flow_needs_lies_with_it(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other/flows"
    other.mkdir(parents=True)
    (tmp_path / "other/commands").mkdir()
    for at, said in (folder, "first"), (other, "second"):
        (at.parent / "commands/c.md").write_text(said)
        (at / "said.md").write_text(said)
    file = {"type": "llm", "agentType": "a", "identifier": "i", "markdownFile": "said.md"}
    write(other, "x", command("c"), file)
    write(folder, "y", command("c"))
    write(folder, "both", runs("x"), command("c"))
    catalog = Catalog((folder, other))
    whole = catalog.document("x")
    assert "second" in str(whole.commands["c"])
    assert "second" in str(whole.markdown["said.md"])
    assert "first" in str(catalog.document("y").commands["c"])
    assert "rename one of both" in str(catalog.flow("both").error)
    (tmp_path / "other/commands/c.md").unlink()
    assert "beside the flows" in str(catalog.flow("x").error)


def test_a_flow_runs_those_of_its_own_folder_first(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other/flows"
    other.mkdir(parents=True)
    for at, said in (folder, "first"), (other, "second"):
        write(at, "child", llm(said))
    write(folder, "only", runs("child"))
    write(other, "parent", runs("child"))
    write(other, "cross", runs("only"))
    write(other, "both", runs("child"), runs("only"))
    catalog = Catalog((folder, other))
    assert "second" in str(catalog.document("parent").flows["child"])
    assert "first" in str(catalog.document("cross").flows["child"])
    assert "rename one of both" in str(catalog.flow("both").error)
    told = {name: faults_in_file(other / f"{name}.json", [folder, other]).faults
            for name in ("parent", "cross", "both")}  # fmt: skip
    assert [*told["parent"], *told["cross"]] == []
    assert [path for path, _ in told["both"]] == ["only: steps[0].flowNames"]


def test_a_document_is_completed_with_what_it_does_not_bring(folder: Path) -> None:
    write(folder, "inner", llm("the catalog's"))
    catalog = Catalog((folder,))
    brought = {"inner": {"steps": [llm("its own")]}}
    assert "its own" in catalog.complete(flow(runs("inner"), flows=brought)).model_dump_json()
    assert "the catalog's" in catalog.complete(flow(runs("inner"))).model_dump_json()
    with pytest.raises(InvalidDocument, match="circle: test -> test"):
        catalog.complete(flow(runs("test")))


@pytest.mark.parametrize("name", ["../flows/x", "/etc/passwd", "x\0", "", "x/../x", "a" * 5000])
def test_a_name_with_a_path_in_it_leads_nowhere(folder: Path, name: str) -> None:
    write(folder, "x", llm())
    with pytest.raises(FlowUnknown):
        Catalog((folder,)).one(name)
