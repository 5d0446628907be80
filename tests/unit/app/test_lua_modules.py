"""The Lua files as modules: what each may see, and how they are composed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path

import pytest

from app.store.script_library import (
    VERBS,
    CyclicModules,
    Reader,
    UndeclaredModule,
    UnknownModule,
    Verb,
    compose,
    file_of,
    library,
    load,
    modules_of,
    script,
    text_of,
)
from tests.lua_code import compile_lua

#: What Lua and Redis offer to a script.
GIVEN = {
    "KEYS", "ARGV", "redis", "cjson", "string", "table", "math", "unpack", "tonumber", "type",
    "pairs", "ipairs", "error", "setmetatable", "tostring",
}  # fmt: skip
#: So many names the composed library may have at its top level.
NAMES_MOST = 30
FOLDER = Path(str(resources.files("app.store"))) / "lua"
FILES = sorted(str(path.relative_to(FOLDER))[: -len(".lua")] for path in FOLDER.rglob("*.lua"))
SHARED = [file for file in FILES if file.startswith("lib/")]


def reader(files: Mapping[str, str]) -> Reader:
    def read(file: str) -> str:
        if file not in files:
            raise FileNotFoundError(file)
        return files[file]

    return read


def composed(files: Mapping[str, str], verb: str = "verb") -> str:
    read = reader(files)
    verbs = [load(verb, read)]
    return compose(verbs, modules_of(verbs, read))


ONE = "local one = {}\nfunction one.call(tx) return tx end\nreturn one"
VERB = "--- @requires one\nreturn function(tx) return one.call(tx) end"


def test_modules_come_behind_what_they_require() -> None:
    files = {
        "verb": "--- @requires three, one\nreturn function(tx) return three.x(one.x(tx)) end",
        "lib/one": "--- @requires two\nlocal one = {x = two.x}\nreturn one",
        "lib/two": "local two = {}\nfunction two.x(tx) return tx end\nreturn two",
        "lib/three": "--- @requires one, two\nlocal three = {x = one.x or two.x}\nreturn three",
    }
    text = composed(files)
    order = [line.split()[0] for line in text.splitlines() if line.startswith("modules.")]
    assert order == ["modules.two", "modules.one", "modules.three"]
    assert compile_lua(text).globals == set()


def test_a_module_that_is_missing_is_named_with_its_user() -> None:
    with pytest.raises(UnknownModule, match=r"verb\.lua requires 'one', but there is no lib/one"):
        composed({"verb": VERB})


def test_a_cycle_is_named() -> None:
    files = {
        "verb": VERB,
        "lib/one": "--- @requires two\nlocal one = {call = two.call}\nreturn one",
        "lib/two": "--- @requires one\nlocal two = {call = one.call}\nreturn two",
    }
    with pytest.raises(CyclicModules, match="one -> two -> one"):
        composed(files)


def test_a_module_that_is_used_and_not_required_is_named() -> None:
    files = {
        "verb": "--- @requires one, two\nreturn function(tx) return one.call(two.call(tx)) end",
        "lib/one": ONE,
        "lib/two": "local two = {}\nfunction two.call(tx) return one.call(tx) end\nreturn two",
    }
    with pytest.raises(UndeclaredModule, match=r"lib/two\.lua uses 'one': add it"):
        composed(files)


def test_a_name_in_a_comment_or_a_text_is_no_use_of_a_module() -> None:
    two = "local two = {}   -- like one.call\nfunction two.call() return 'one.call' end\nreturn two"
    verb = "--- @requires one, two\nreturn function(tx) return one.call(two.call(tx)) end"
    composed({"verb": verb, "lib/one": ONE, "lib/two": two})


def test_a_module_cannot_see_the_local_names_of_another_one() -> None:
    files = {
        "verb": "--- @requires one\nreturn function(tx) return one.call(tx, hidden, modules) end",
        "lib/one": "local hidden = 1\n" + ONE,
    }
    text = f"{composed(files)}return {load('verb', reader(files)).expression}"
    assert compile_lua(text).globals == {"hidden"}


@pytest.mark.parametrize("file", FILES)
def test_a_file_uses_no_name_but_its_own_and_those_it_requires(file: str) -> None:
    source = load(file, text_of)
    names = ", ".join(path.rsplit("/", 1)[-1] for path in source.requires)
    used = compile_lua(f"return function({names or '_'})\n{source.text}\nend").globals
    assert used <= GIVEN - {"KEYS", "ARGV"}


@pytest.mark.parametrize("file", FILES)
def test_a_file_uses_all_that_it_requires(file: str) -> None:
    assert load(file, text_of).unused() == []


@pytest.mark.parametrize("file", SHARED)
def test_a_module_returns_the_table_of_its_name(file: str) -> None:
    name = file.rsplit("/", 1)[-1]
    assert f"\nlocal {name} = {{}}\n" in text_of(file)
    assert text_of(file).endswith(f"\nreturn {name}\n")


@pytest.mark.parametrize("file", FILES)
def test_a_file_says_what_it_is_for_and_is_short(file: str) -> None:
    text = text_of(file)
    assert text.startswith("-- ")
    if file not in SHARED:
        assert "\n-- Returns: " in text
        assert len(text.splitlines()) <= 80
    assert len(text.splitlines()) < 200
    assert max(map(len, text.splitlines())) <= 120


def test_two_modules_do_not_have_one_name() -> None:
    names = [file.rsplit("/", 1)[-1] for file in SHARED]
    assert sorted(names) == sorted(set(names))


def test_each_module_is_part_of_the_library() -> None:
    body = library().body
    assert [file for file in SHARED if f"-- {file}.lua\n" not in body] == []


def test_the_library_has_few_names_at_its_top_level() -> None:
    code = compile_lua(library().body)
    assert code.globals <= GIVEN
    assert len(code.locals) < NAMES_MOST


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_has_nothing_but_what_its_verb_requires(verb: Verb) -> None:
    text = script(verb)
    code = compile_lua(text)
    assert code.globals <= GIVEN
    assert len(code.locals) < NAMES_MOST
    needed = {"lib/parts", *required(file_of(verb), lambda file: load(file, text_of).requires)}
    assert {file for file in SHARED if f"-- {file}.lua\n" in text} == needed - {"lib/parts"}


def required(file: str, requires: Callable[[str], tuple[str, ...]]) -> set[str]:
    """All modules below a file."""
    found: set[str] = set()
    todo = [file]
    while todo:
        new = {f"lib/{path}" for path in requires(todo.pop())} - found
        found |= new
        todo += new
    return found


def test_a_script_for_one_verb_leaves_out_the_modules_of_others() -> None:
    assert "lib/turns.lua" not in script("hold_name")
    assert "lib/resume.lua" not in script("settle")
    assert "lib/resume.lua" in script("control")
