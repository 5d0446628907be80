"""Which functions are inline: the entries in tools.toml, their errors, and who may name them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.core.environment import Definitions
from app.settings import Settings
from tests.waiting import wait_until
from workers.registry.inline import InlineFunctions
from workers.registry.registries import Registries
from workers.registry.tool_book import ToolFiles
from workers.registry.tools import ToolCatalogue

NAMED = '[functions."sums:add"]\ninline = true\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "tools", NAMED)


def make_folder(folder: Path, entries: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "sums.py").write_text("def add(a: int) -> int: return a + 1\n")
    (folder / "tools.toml").write_text(entries)
    return folder


def fault_of(folder: Path, entries: str, name: str = "sums:add") -> str:
    (folder / "tools.toml").write_text(entries)
    inline = InlineFunctions([folder])
    assert inline.find(name) is None
    return str(inline.fault(name))


def test_entry_makes_a_function_inline_with_its_time_limit(folder: Path):
    inline = InlineFunctions([folder])
    found = inline.find("sums:add")
    assert found is not None
    assert (found.file, found.timeout_s) == (folder / "sums.py", 5)
    assert inline.find("sums:other") is None
    (folder / "tools.toml").write_text(NAMED + "timeout_s = 0.5\n")
    wait_until(lambda: getattr(inline.find("sums:add"), "timeout_s", None) == 0.5)
    (folder / "tools.toml").write_text(NAMED.replace("true", "false"))
    wait_until(lambda: inline.find("sums:add") is None)


@pytest.mark.parametrize(
    ("entries", "line", "said"),
    [
        (NAMED + "timeout_s = 61\n", 3, "less than or equal to 60"),
        (NAMED + "timeout_s = 0\n", 3, "greater than 0"),
        (NAMED + "timout_s = 1\n", 3, "use inline, timeout_s; did you mean 'timeout_s'?"),
        (NAMED.replace("true", '"yes"'), 2, "boolean"),
        ('[functions]\n"sums:add" = true\n', 2, "write a table"),
        (NAMED + "inline = ", 3, ""),
    ],
)
def test_broken_entry_is_named_with_file_and_line(folder: Path, entries: str, line: int, said: str):
    fault = fault_of(folder, entries)
    assert f"{folder / 'tools.toml'}, line {line}" in fault
    assert said in fault
    (tool,) = ToolCatalogue([folder], inline=InlineFunctions([folder])).tools()
    assert tool.why_not == fault


def test_entry_of_a_module_that_is_not_there_is_an_error(folder: Path):
    fault = fault_of(folder, '[functions."other:add"]\ninline = true\n', "other:add")
    assert f"is not module:function with a module of {folder}" in fault


def test_first_folder_that_has_the_module_decides(folder: Path, tmp_path: Path):
    second = make_folder(tmp_path / "second", NAMED + "timeout_s = 9\n")
    found = InlineFunctions([folder, second]).find("sums:add")
    assert found is not None
    assert found.file == folder / "sums.py"
    (folder / "tools.toml").unlink()
    assert InlineFunctions([folder, second]).find("sums:add") is None


def test_folder_of_a_session_makes_nothing_inline(folder: Path, tmp_path: Path):
    own = make_folder(tmp_path / "own" / "tools", NAMED).parent
    registries = Registries(Settings(tools=(folder,)), tmp_path / "servers")
    shelf = registries.of(Definitions(str(own))).shelf
    assert "sums:add" in {tool.name for tool in shelf.tools()}
    assert shelf.inline.find("sums:add") == registries.base.shelf.inline.find("sums:add")
    alone = Registries(Settings(), tmp_path / "servers").of(Definitions(str(own))).shelf
    assert alone.inline.find("sums:add") is None


def test_functions_are_refused_outside_a_folder_of_tools(tmp_path: Path):
    (tmp_path / "tools.toml").write_text(NAMED)
    agents = [tmp_path / "agents.toml"]
    (fault,) = ToolFiles(agents).current().faults
    assert "write it into tools.toml in a folder of LEADHAND_TOOLS" in fault.public
    assert not ToolFiles(agents, tool_folders=[tmp_path]).current().faults


def test_module_is_imported_under_a_name_of_its_own_and_again_after_a_change(folder: Path):
    inline = InlineFunctions([folder])
    function = inline.find("sums:add")
    assert function is not None
    assert inline.imported(function) is None
    first = inline.load(function)
    assert first(1) == 2
    assert inline.imported(function) is first
    assert "sums" not in sys.modules
    (folder / "sums.py").write_text("def add(a): return a + 20\n")
    assert inline.imported(function) is None
    assert inline.load(function)(1) == 21
    assert first.__module__ not in sys.modules


def test_file_that_cannot_be_imported_leaves_no_module(folder: Path):
    inline = InlineFunctions([folder])
    function = inline.find("sums:add")
    assert function is not None
    (folder / "sums.py").write_text("import sys\nraise RuntimeError('no')\n")
    before = set(sys.modules)
    with pytest.raises(RuntimeError, match="no"):
        inline.load(function)
    assert {name for name in set(sys.modules) - before if "inline" in name} == set()
    (folder / "sums.py").write_text("other = 1\n")
    with pytest.raises(AttributeError, match="add"):
        inline.load(function)
    assert inline.imported(function) is None
