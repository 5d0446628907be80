"""Tools that are functions of users: found without being run, refused at submit, called typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.core.outcomes import Outcome
from app.core.program import Action
from app.errors import InvalidDocument
from app.fleet.admission import admit, other_home, tools_of
from app.fleet.inventory import inventory_of, text_of
from app.sessions.results import fails_again
from app.settings import Settings
from leadhand.cli.tools import tool_lines
from leadhand.flows.documents import FlowDocument
from leadhand.functions.modules import TAKEN
from leadhand.models.verdicts import ReasonCode
from leadhand.models.views.fleet import ToolHere, ToolView, WorkerView
from tests.flows import flow
from workers.attempt.actions import BodyTask, run_body
from workers.processes.warm_pool import Warm
from workers.registry.agents import AgentBook
from workers.registry.tools import ToolCatalogue

CODE = '''
import asyncio, os, sys, time
from pathlib import Path
from typing import Literal

open(os.environ.get("RAN", os.devnull), "a").write("imported")

def slug(title: str, *, sep: Literal["-", "_"] = "-", limit: int = 80) -> str:
    """Makes a title
    fit for a path.

    And this is not shown."""
    return sep.join(title.lower().split())[:limit]

async def later(numbers: list[int]) -> dict:
    await asyncio.sleep(0)
    return {"sum": sum(numbers)}

def anything(first, /, **more): return [first, more]
def where(): return [os.getcwd(), os.environ["LEADHAND_KEY"], "LEADHAND_SECRET" in os.environ]
def says(): print("only said")
def declines(): return {"success": False, "error": "the shop is closed"}
def breaks(): raise ValueError("no ink")
def is_away():
    from urllib.error import HTTPError
    raise HTTPError("http://127.0.0.1", 503, "away", {}, None)
def hangs(): time.sleep(60)
def leaves(): os._exit(0)
def pid(): return os.getpid()
def _own(): pass
def helped():
    import helper
    return helper.VALUE

class Tool:
    def method(self): pass
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "text.py").write_text(CODE)
    (tools / "helper.py").write_text("VALUE = 'the tools own'")
    return tools


@pytest.fixture
def use(tmp_path: Path, folder: Path) -> Iterator[Callable[..., Outcome]]:
    work, warm = tmp_path / "work", Warm()
    work.mkdir()

    def run(
        tool: str, *, quick: bool = False, cancel=None, timeout_s=20.0, shelf=None, **given: Any
    ):
        task = BodyTask(
            session="ab12cd34", address="slug", action=Action.TOOL, iteration=1, attempt=1,
            inputs={"tool": tool, "arguments": given, "quick": quick}, cwd=work,
            spill=tmp_path / "spill", timeout_s=timeout_s, url="http://127.0.0.1:1", mint=str,
            agents=AgentBook(), default_agent=None, warm=warm,
            shelf=shelf or ToolCatalogue([folder]),
        )  # fmt: skip
        return run_body(task, cancel or threading.Event())

    yield run
    warm.close()


def why(outcome: Outcome) -> str:
    assert outcome.reason is not None
    assert (outcome.word, outcome.reason.code) == ("failed", ReasonCode.FAILED_STEP)
    return outcome.reason.text


def test_tools_are_found_in_their_files_without_running_them(folder, monkeypatch) -> None:
    monkeypatch.setenv("RAN", str(folder / "ran"))
    found = {tool.name: tool for tool in ToolCatalogue([folder]).tools()}
    assert not (folder / "ran").exists()
    assert set(found) == {
        f"text:{name}"
        for name in ("slug", "later", "anything", "where", "says", "declines", "breaks", "hangs",
                     "leaves", "pid", "helped", "is_away")
    }  # fmt: skip
    slug = found["text:slug"]
    assert slug.about == "Makes a title fit for a path."
    assert [(p.name, p.annotation, p.required) for p in slug.parameters] == [
        ("title", "str", True), ("sep", "Literal['-', '_']", False), ("limit", "int", False),
    ]  # fmt: skip
    assert found["text:anything"].takes_any


def test_a_shelf_is_read_anew_as_its_files_change(folder) -> None:
    shelf = ToolCatalogue([folder, folder.parent / "absent"])
    (folder / "more.py").write_text("def one(): pass")
    assert shelf.tool("more:one") is not None
    (folder / "more.py").write_text("def other(): pass  # another size")
    assert shelf.tool("more:one") is None
    (folder / "more.py").write_text("def other(:")
    broken = shelf.tool("more:other")
    assert broken is not None
    assert "more.py, line 1 is not valid Python: " in str(broken.why_not)
    (folder / "more.py").unlink()
    assert shelf.tool("more:other") is None


def test_of_two_files_of_one_name_the_first_folders_is_meant(folder, tmp_path, use) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "text.py").write_text("def only_there(): pass")
    names = {tool.name for tool in ToolCatalogue([folder, other]).tools()}
    assert "text:slug" in names
    assert "text:only_there" not in names


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (f"def f(a: {'+'.join(['int'] * 700)}): pass", "nested too deep, or too large, to be read"),
        (f"x = {'-' * 100_000}1", "nested too deep, or too large, to be read"),
        ("x = '\0'", "is not valid Python: "),
    ],
)
def test_a_file_that_python_gives_up_to_read_is_told_and_the_others_work(
    folder, use, code, told
) -> None:
    (folder / "odd.py").write_text(code)
    found = {tool.name: tool for tool in ToolCatalogue([folder]).tools()}
    assert told in str(found["odd"].why_not)
    assert use("text:slug", title="A B").value == "a-b"
    assert told in why(use("odd:f"))


def test_what_is_no_file_is_not_waited_for(folder) -> None:
    os.mkfifo(folder / "pipe.py")
    told = ToolCatalogue([folder]).tool("pipe:x")
    assert told is not None
    assert "pipe.py cannot be read: it is not a regular file" in str(told.why_not)


@pytest.mark.parametrize("hint", ["x='\\ud800'", "x: Literal['\\ud800']"])
def test_a_tool_without_a_schema_that_can_be_sent_costs_no_other_tool(folder, hint: str) -> None:
    (folder / "odd.py").write_text(f"def odd({hint}): ...\ndef plain(x: int): ...\n")
    found = {tool.name: tool for tool in ToolCatalogue([folder]).tools()}
    assert found["odd:odd"].input_schema == {}
    assert found["odd:odd"].why_not is None
    assert found["odd:plain"].input_schema["required"] == ["x"]
    assert all(tool.model_dump_json() for tool in found.values())


def test_what_a_tool_says_of_itself_is_text_that_can_be_sent(folder) -> None:
    (folder / "says.py").write_text("def f():\n    'a \\ud800 b'")
    told = ToolCatalogue([folder]).tool("says:f")
    assert told is not None
    assert (told.about, told.why_not) == ("a ? b", None)


@pytest.mark.parametrize("name", ["json", "inspect", "queue", "sys", "leadhand", "pydantic"])
def test_a_file_that_has_the_name_of_a_module_of_ours_is_to_be_renamed(folder, use, name) -> None:
    (folder / f"{name}.py").write_text("def dumps(obj): return 'the own one'")
    told = ToolCatalogue([folder]).tool(f"{name}:dumps")
    assert told is not None
    assert str(told.why_not).endswith(f"{name}.py has the name of a module that Python or Leadhand"
                                      " imports itself; rename it")  # fmt: skip
    assert "rename it" in why(use(f"{name}:dumps", obj=1))


def test_all_that_a_call_imports_is_known_as_taken() -> None:
    code = """
import sys
before = {*sys.modules}
import leadhand.functions.modules, leadhand.functions.runner
def typed(one: list[int], two: dict[str, str]) -> None: ...
leadhand.functions.modules.typed_arguments(typed, {"one": ["1"], "two": {}})
print(*{name.partition(".")[0] for name in sys.modules if name not in before})
"""
    line = [sys.executable, "-c", code]
    told = subprocess.run(line, capture_output=True, text=True, check=True)
    names = {name for name in told.stdout.split() if name[0] != "_"}
    # Who measures coverage has imported some of Python's own before.
    assert {"pydantic", "leadhand"} <= names
    assert names <= TAKEN


@pytest.mark.parametrize("quick", [False, True])
def test_another_module_of_the_name_is_not_called_in_place_of_a_tools_file(
    folder, use, quick
) -> None:
    (folder / "text").mkdir()
    (folder / "text/__init__.py").write_text("def slug(title): return 'another'")
    told = why(use("text:slug", quick=quick, title="A B"))
    assert "'text' is another module here (" in told
    assert told.endswith("instead of text.py in the tool folders; rename that file")


def test_a_quick_tool_is_read_anew_where_a_folder_that_goes_first_has_it_now(
    tmp_path, folder, use
) -> None:
    first = tmp_path / "first"
    first.mkdir()
    ask = {"shelf": ToolCatalogue([first, folder]), "quick": True, "title": "A B"}
    assert use("text:slug", **ask).value == "a-b"
    (first / "text.py").write_text("def slug(title): return 'of the first'")
    assert use("text:slug", **ask).value == "of the first"


@pytest.mark.parametrize("quick", [False, True])
def test_a_tool_is_called_with_what_its_annotations_want(use, quick) -> None:
    done = use("text:slug", quick=quick, title="A Long Title", limit="6")
    assert (done.word, done.value, done.text) == ("succeeded", "a-long", "a-long")
    summed = use("text:later", quick=quick, numbers=["1", 2])
    assert (summed.value, summed.text) == ({"sum": 3}, '{"sum": 3}')
    assert use("text:anything", quick=quick, first=None, b=[1]).value == [None, {"b": [1]}]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"title": ["a"]}, "tool 'text:slug': argument 'title': it is ['a']; it should be a valid"),
        ({"title": "a", "sep": "+"}, "argument 'sep': it is '+'; it should be '-' or '_'"),
        ({}, "argument 'title': it is missing; give it in the step's arguments"),
        ({"title": "a", "x": 1}, "argument 'x': the tool has no such argument; it has: title, sep"),
    ],
)
def test_what_a_tool_cannot_be_called_with_is_named(use, quick, given, told) -> None:
    refused = use("text:slug", quick=quick, **given)
    assert told in why(refused)
    assert refused.reason is not None
    assert fails_again(refused.reason)  # so that explain does not suggest to retry it


def test_what_a_tool_returns_as_failed_has_failed(use) -> None:
    done = use("text:declines")
    assert why(done) == "tool 'text:declines' reported a failure: the shop is closed"
    assert done.value == {"success": False, "error": "the shop is closed"}


def test_a_tool_that_raises_tells_its_own_line(use) -> None:
    broken = use("text:breaks")
    assert broken.errors[:2] == ("ValueError", "Exception")
    assert use("text:breaks", quick=True).errors == broken.errors
    assert {"HTTPError", "OSError", "http 503"} < set(use("text:is_away").errors)
    told = why(broken)
    assert told.startswith("tool 'text:breaks' raised: ")
    assert "text.py" in told
    assert "no ink" in told


def test_a_tool_that_ends_its_process_has_not_returned(use) -> None:
    assert why(use("text:leaves")) == "tool 'text:leaves' ended its process before it returned"


def test_a_tool_works_in_the_folder_and_knows_its_key(use, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LEADHAND_SECRET", "hush")
    assert use("text:where").value == [str(tmp_path / "work"), "ab12cd34:slug", False]
    assert use("text:says").text == "only said"


@pytest.mark.parametrize("quick", [False, True])
def test_the_working_folder_takes_no_place_of_a_tools_modules(use, tmp_path, quick) -> None:
    for name in ("text", "helper"):
        (tmp_path / f"work/{name}.py").write_text("VALUE = 'not this'")
    assert use("text:helped", quick=quick).value == "the tools own"


def test_quick_calls_share_a_process_until_a_file_of_tools_changes(use, folder) -> None:
    first, second = (use("text:pid", quick=True).value for _ in range(2))
    assert first == second
    (folder / "text.py").write_text(CODE + "# changed\n")
    assert use("text:pid", quick=True).value != first
    assert use("text:pid").value not in (first, os.getpid())


def test_a_tool_overruns_its_time_or_is_cancelled(use) -> None:
    late = use("text:hangs", timeout_s=0.5)
    assert late.reason is not None
    assert late.reason.code is ReasonCode.TIMEOUT
    cancel = threading.Event()
    cancel.set()
    ended = use("text:hangs", cancel=cancel)
    assert ended.reason is not None
    assert ended.reason.code is ReasonCode.CANCELLED


def test_a_tool_that_is_gone_by_then_is_told_with_those_that_are(use, folder) -> None:
    assert "ToolNotFound: tool 'text:gone' is not known here; known are echo, noop, " in why(
        use("text:gone")
    )
    (folder / "bad.py").write_text("def x(:")
    assert "bad.py, line 1 is not valid Python" in why(use("bad:x"))


def worker(*tools: ToolHere, place: str = "local") -> WorkerView:
    return WorkerView(name=place, place=place, tools_here=list(tools))


def here(name: str, **more: Any) -> ToolHere:
    return ToolHere(name=name, **more)


def using(tool: str, **given: Any) -> FlowDocument:
    return flow({"type": "tool", "tool": tool, "arguments": given})


def refused(document: FlowDocument, *workers: WorkerView) -> tuple[str, str]:
    with pytest.raises(InvalidDocument) as caught:
        admit(document, Settings(), list(workers))
    return caught.value.field, str(caught.value)


SLUG = here("text:slug", parameters=[{"name": "title"}, {"name": "limit", "required": False}])


def test_a_tool_that_no_worker_has_is_refused_at_submit() -> None:
    field, told = refused(using("text:gone"), worker(SLUG))
    assert field == "steps[0].tool"
    assert "known: echo, noop, text:slug. Put it into a folder of LEADHAND_TOOLS" in told
    admit(using("text:gone"), Settings(), [])  # no worker is running yet: any tool is accepted
    admit(using("echo", a=1), Settings(), [worker()])


def test_a_tool_of_a_broken_file_is_refused_with_what_is_wrong_with_it() -> None:
    broken = here("text", why_not="text.py, line 1 is not valid Python: x")
    field, told = refused(using("text:slug"), worker(broken))
    assert (field, "its file cannot be used: text.py, line 1" in told) == ("steps[0].tool", True)


def test_arguments_that_a_tool_has_not_or_must_have_are_refused_at_submit() -> None:
    field, told = refused(using("text:slug"), worker(SLUG))
    assert (field, "requires this argument" in told) == ("steps[0].arguments.title", True)
    field, told = refused(using("text:slug", title="a", size=1), worker(SLUG))
    assert (field, "it has: title, limit" in told) == ("steps[0].arguments.size", True)
    admit(using("text:slug", title="a"), Settings(), [worker(SLUG)])


def test_a_session_goes_where_its_tools_are() -> None:
    near, far = worker(), worker(SLUG, place="far")
    settings = Settings(place="local")
    assert admit(using("text:slug", title="a"), settings, [near, far]).place == "far"
    assert admit(using("text:slug", title="a"), settings, [far]).place == "", "any will do"
    assert admit(using("echo"), settings, [near, far]).place == ""
    named = using("text:slug", title="a").model_copy(update={"place": "local"})
    assert "it is at far" in refused(named, near, far)[1]


def test_tools_that_are_nowhere_together_are_refused() -> None:
    steps = [{"type": "tool", "tool": tool} for tool in ("one:x", "two:x")]
    document = flow(*steps)
    field, told = refused(document, worker(here("one:x")), worker(here("two:x"), place="far"))
    assert (field, "no one place has all of these tools" in told) == ("steps", True)


def test_a_session_is_not_moved_to_where_its_tools_are_not() -> None:
    rooted = [
        one.model_copy(update={"roots": ["/f"]})
        for one in (worker(SLUG, place="able"), worker(place="poor"))
    ]
    assert other_home("gone", "/f/x", rooted, agents=(), tools={"text:slug"}) == "able"
    assert other_home("gone", "/f/x", rooted[1:], agents=(), tools={"text:slug"}) is None


def test_tools_are_listed_with_where_they_can_be_used() -> None:
    views = tools_of([worker(SLUG), worker(here("text", why_not="broken"), place="far")])
    assert [(view.name, view.usable_at) for view in views] == [
        ("echo", ["far", "local"]), ("noop", ["far", "local"]), ("text", []),
        ("text:slug", ["local"]),
    ]  # fmt: skip
    lines = tool_lines([ToolView.model_validate(view.model_dump()) for view in views])
    assert lines[1].split()[:5] == ["echo", "built-in", "any", "far", "local"]
    assert "  not at far: broken" in lines
    assert "title, [limit]" in lines[-1]
    assert tool_lines([])[0].startswith("no worker is running; start one with `leadhand worker`")


def test_a_file_of_tools_that_cannot_be_read_costs_only_its_own_tools(tmp_path) -> None:
    tools = tmp_path / "hostile"
    tools.mkdir()
    contents = {
        "good": b"def tool(): pass",
        "empty": b"",
        "latin": b"def tool():\n    '\xe9\xff'",
        "zero": b"def tool(): \0",
        "deep": b"x = " + b"(" * 100_000,
        "declared": b"# coding: no-such-codec\ndef tool(): pass",
        "odd": b"def tool(x='\\ud800', *, y: '\\ud800' = 1, **z):\n    '\\ud800'",
    }
    for name, content in contents.items():
        (tools / f"{name}.py").write_bytes(content)
    (tools / "folder.py").mkdir()
    os.mkfifo(tools / "pipe.py")
    (tools / "loop.py").symlink_to("loop.py")
    (tools / "memory.py").symlink_to("/proc/self/mem")
    Path(os.fsdecode(os.fsencode(tools) + b"/\xff.py")).write_text("def tool(): pass")
    shelf = ToolCatalogue([tools, tools / "good.py", tmp_path / "gone", Path("\xff" * 300)])
    for _ in range(2):
        found = {tool.name: tool for tool in shelf.tools()}
        assert {name for name, tool in found.items() if tool.why_not is None} == {
            "good:tool", "odd:tool",
        }  # fmt: skip
        broken = {"latin", "zero", "deep", "declared", "folder", "pipe", "loop", "memory"}
        assert broken == {name for name, tool in found.items() if tool.why_not is not None}
        for name in broken:
            assert f"{name}.py" in str(found[name].why_not)
        text = text_of(
            {"tools": [tool.model_dump() for tool in found.values()]}, now_ms=0, holds_ms=0
        )
        assert json.loads(text)["tools"]


def test_a_path_that_is_not_utf_8_spoils_no_inventory() -> None:
    root = os.fsdecode(b"/work/\xff")
    text = text_of({"place": "here", "roots": [root]}, now_ms=0, holds_ms=1)
    assert inventory_of("one", text).worker.roots == ["/work/?"]
