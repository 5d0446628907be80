"""tools.toml: a faulty entry costs only itself, and never falls back to another file."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue

from app.compiler.requirements import ToolNeed
from app.fleet.admission import ToolsThere
from app.sessions.results import fails_again
from leadhand.models.tool_schemas import check_tool_name
from leadhand.models.views.fleet import ToolHere, WorkerView
from tests.unit.workers.declared.tool_world import ToolWorld, why
from workers.registry.tool_book import ToolFiles
from workers.registry.tool_entry import DeclaredTool
from workers.registry.tools import ToolCatalogue
from workers.tools.tool import items


@pytest.fixture
def world(tmp_path: Path) -> ToolWorld:
    return ToolWorld(tmp_path)


def listed(world: ToolWorld) -> dict[str, ToolHere]:
    return {tool.name: tool for tool in world.shelf.tools()}


def test_entries_are_listed_with_kind_and_arguments(world: ToolWorld) -> None:
    world.write("""
[tools.count]
description = "Counts words."
command = ["wc", "-w", "--", "{path}"]

[tools.find]
url = "https://api.example/find/{topic}"
arguments = {topic = "string", limit = {type = "integer", default = 3, description = "At most."}}
""")
    found = listed(world)
    assert (found["count"].kind, found["count"].about) == ("command", "Counts words.")
    assert [(p.name, p.annotation, p.required) for p in found["count"].parameters] == [
        ("path", "string", True)
    ]
    assert found["find"].kind == "http"
    assert [(p.name, p.annotation, p.required) for p in found["find"].parameters] == [
        ("topic", "string", True), ("limit", "integer", False),
    ]  # fmt: skip
    limit = {"type": "integer", "default": 3, "description": "At most."}
    properties = found["find"].input_schema["properties"]
    assert properties == {"topic": {"type": "string"}, "limit": limit}


@pytest.mark.parametrize(
    ("entry", "line", "hint"),
    [
        ('comand = ["wc"]', 3, "did you mean 'command'?"),
        ("timeout_s = 3", 2, "it is nothing; write command"),
        ('command = "wc"', 3, 'write a list: ["program", "argument"]'),
        ('command = ["wc"]\nurl = "https://x.example/"', 2, "it is command and url"),
        ('command = ["wc"]\nheaders = {A = "b"}', 2, "headers has no meaning for a command"),
        ('command = ["wc", "{file}"]\narguments = {path = "string"}', 2, "{file} is no argument"),
        ('command = ["wc"]\narguments = {path = "text"}', 4, "Input should be 'string'"),
        ('command = ["{prog}", "x"]', 2, "an argument cannot choose the program"),
        ('url = "ftp://x.example"', 3, "a URL that begins with http:// or https://"),
        ('url = "https://{host}/"', 2, "an argument cannot choose the host"),
        ('url = "https://me:secret@x.example/"', 2, "no user or password"),
        ('url = "https://x.example/"\nheaders = {A = "{KEY}"}', 2, "no variable of needs_env"),
        ('command = ["wc"]\nenv = ["LEADHAND_SECRET"]', 4, "are not passed on"),
    ],
)
def test_a_fault_names_its_line_and_the_fix(world: ToolWorld, entry: str, line, hint) -> None:
    world.write(f"\n[tools.odd]\n{entry}\n\n[tools.good]\ncommand = ['true']\n")
    found = listed(world)
    why_not = found["odd"].why_not or ""
    assert f"{world.file}, line {line}: tools.odd" in why_not, why_not
    assert hint in why_not.replace("it should", "Input should"), why_not
    assert found["good"].why_not is None
    assert hint[:12] in why(world.call("odd")).replace("it should", "Input should")


def test_an_invalid_entry_hides_that_of_an_earlier_file(tmp_path: Path) -> None:
    for name, text in {"user": 'command = ["true"]', "own": "command = 3"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "tools.toml").write_text(f"[tools.check]\n{text}\n")
    files = [tmp_path / "user/agents.toml", tmp_path / "own/agents.toml"]
    [tool] = ToolCatalogue(declared=ToolFiles(files)).tools()
    assert "own/tools.toml, line 2" in (tool.why_not or "")


def test_a_file_that_is_no_toml_disables_its_tools_and_a_running_session_keeps_them(world) -> None:
    world.write("[tools.hello]\ncommand = ['echo', 'hello']\n")
    assert world.call("hello").value == "hello"
    world.write("[tools.hello]\ncommand = [\n")
    found = listed(world)
    assert "is not TOML" in (found["hello"].why_not or "")
    assert "is not TOML" in (found["tools.toml"].why_not or "")
    assert world.call("hello").value == "hello"


def test_names_of_other_tools_are_refused(world: ToolWorld) -> None:
    world.write("""
[tools.echo]
command = ["true"]
[mcp.graph]
command = "true"
[tools."two words"]
command = ["true"]
""")
    found = listed(world)
    assert "every worker has a tool of this name" in (found["echo"].why_not or "")
    assert "tools of Leadhand begin with this name" in (found["graph"].why_not or "")
    assert "with a letter first" in (found["two words"].why_not or "")
    assert [found[name].kind for name in ("echo", "graph")] == ["command", "mcp"]


def test_server_with_the_name_of_a_tool_is_listed_as_a_server(world: ToolWorld) -> None:
    world.write('[tools.shop]\ncommand = ["true"]\n[mcp.shop]\ncommand = "true"\n')
    found = listed(world)["shop"]
    assert found.kind == "mcp"
    assert "mcp.shop: a tool and a server have this name" in (found.why_not or "")


@pytest.mark.parametrize("name", ["flow.tally", "graph.items", "a b", "x:", "server.", "${x}"])
def test_no_document_can_name_an_internal_or_malformed_tool(name: str) -> None:
    with pytest.raises(ValueError, match=r"SERVER\.TOOL"):
        check_tool_name(name)


def test_a_variable_that_is_missing_is_named(world: ToolWorld, monkeypatch) -> None:
    monkeypatch.delenv("SHOP_KEY", raising=False)
    world.write('[tools.buy]\ncommand = ["sh", "-c", "echo $SHOP_KEY"]\nneeds_env = ["SHOP_KEY"]\n')
    assert "the variable SHOP_KEY is not set" in (listed(world)["buy"].why_not or "")
    assert "the variable SHOP_KEY is not set" in why(world.call("buy"))
    monkeypatch.setenv("SHOP_KEY", "a-long-secret-key")
    assert listed(world)["buy"].why_not is None
    assert world.call("buy").value == "[redacted]"


def fault(workers: list[WorkerView], tool: str, **known: JsonValue) -> str:
    found = ToolsThere(workers).faults(ToolNeed("steps[0]", tool, known, known))
    return "\n".join(f"{one.field}: {one.hint}" for one in found)


def test_submit_refuses_unknown_tools_and_unfit_arguments(world: ToolWorld) -> None:
    world.write("""
[tools.count]
command = ["wc", "{flag}", "--", "{files}"]
[tools.count.arguments]
files = {type = "array", items = {type = "string"}}
flag = {type = "string", required = false}
[tools.odd]
command = 3
""")
    workers = [WorkerView(name="one", place="here", tools_here=[*world.shelf.tools()])]
    assert fault(workers, "count", files=["a"]) == ""
    assert "steps[0].arguments.file" in fault(workers, "count", file="a")
    assert "steps[0].arguments.files: it should be a list" in fault(workers, "count", files="a")
    assert "steps[0].arguments.files" in fault(workers, "count", flag="-l")
    assert "it cannot be used" in fault(workers, "odd")
    assert "Write it into tools.toml" in fault(workers, "other")


def test_refused_arguments_are_no_failure_that_a_retry_repairs(world: ToolWorld) -> None:
    world.write("""
[tools.count]
command = ["wc", "-l", "{file}"]
arguments = {file = "string", number = {type = "integer", required = false}}
[tools.stop]
command = ["sh", "-c", "exit 3"]
""")
    refused = [
        world.call("count", file=["a"]), world.call("count", files="a"), world.call("count"),
        world.call("count", file="-x"), world.call("count", file="a", number="x"),
        items({"items": "a"}),
    ]  # fmt: skip
    assert all(one.reason is not None and fails_again(one.reason) for one in refused), refused
    failed = world.call("stop")
    assert failed.reason is not None
    assert not fails_again(failed.reason)


def test_get_repeats_and_post_does_not() -> None:
    get = DeclaredTool(url="https://x.example/")
    assert get.may_repeat
    assert not DeclaredTool(url="https://x.example/", method="POST").may_repeat
    assert not DeclaredTool(command=("true",)).may_repeat
