"""Composes the transitions for Redis: one library of functions, or one script per verb.

`lua/` holds a file per verb, which is its declaration: `lua/audit/` the verbs of the audit,
`lua/tree/` those of what a tree of sessions shares, `lua/stack/` those of stacks, and `lua/plan/`
those of plans. The file returns a function of the transaction, `tx`. `lua/lib/` has the modules
that they require.

A module is a file of `lua/lib/` that returns a table of its own name. It lists the modules that it
uses in its header, by their paths below `lib/`::

    --- @requires addresses, locks/tickets
    local locks = {}
    ...
    return locks

In the composed text a module is a function of the modules that it lists. It cannot see any other
module, nor a local name of another file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Set
from functools import cache, lru_cache
from hashlib import sha1
from importlib import resources
from typing import NamedTuple, TypeAlias

from app.store.keys import lua_parts

#: Reads one file of `lua/` by its path without the ending.
Reader = Callable[[str], str]
_REQUIRES = re.compile(r"^--- @requires (.+)$", re.MULTILINE)
#: Comments and strings.
_NO_CODE = re.compile(r"--[^\n]*|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"")
#: A table whose field is used, and which is not a field itself.
_TABLE = re.compile(r"(?<![\w.:])([a-z_]\w*)\s*(?:\.(?!\.)|\[)")
_LOCAL = re.compile(r"\blocal\s+(?:function\s+)?(\w+)")
#: The name of a transition, such as `settle`.
Verb: TypeAlias = str


def _lua_files() -> dict[Verb, str]:
    """The file of each verb by its path in `lua/`, without the ending: of tree_lock, tree/lock."""
    top = resources.files("app.store") / "lua"
    groups = {one.name: one for one in top.iterdir() if one.is_dir() and one.name != "lib"}
    folders = {"": top, **{f"{name}/": folder for name, folder in groups.items()}}
    paths = [
        prefix + file.name.removesuffix(".lua")
        for prefix, folder in folders.items()
        for file in folder.iterdir()
        if file.name.endswith(".lua")
    ]
    return {path.replace("/", "_"): path for path in sorted(paths)}


_FILES = _lua_files()
VERBS = tuple(_FILES)
#: A full server carries these out: they make room, or find what will. It refuses all others.
_MAKES_ROOM = frozenset[Verb]({"due", "outbox_done", "delete", "stack_begin", "stack_delete"})
#: The names of all libraries of this program begin with this.
PREFIX = "leadhand_"


class WrongModule(Exception):
    """A Lua file whose requirements are wrong.

    WrongModule
    ├── UnknownModule
    ├── CyclicModules
    └── UndeclaredModule
    """

    def __init__(self, file: str, other: str) -> None:
        super().__init__(file, other)
        self.file = file
        self.other = other


class UnknownModule(WrongModule):
    def __str__(self) -> str:
        return f"{self.file}.lua requires {self.other!r}, but there is no lib/{self.other}.lua"


class CyclicModules(WrongModule):
    def __str__(self) -> str:
        return f"{self.file}.lua requires itself: {self.other}"


class UndeclaredModule(WrongModule):
    def __str__(self) -> str:
        return f"{self.file}.lua uses {self.other!r}: add it to its @requires line"


class Source(NamedTuple):
    """A Lua file, and the paths of the modules that it requires."""

    file: str
    text: str
    requires: tuple[str, ...]

    @property
    def expression(self) -> str:
        """Return the file as a Lua expression that takes its requirements from `modules`."""
        names = ", ".join(map(_name, self.requires))
        given = ", ".join(f"modules.{_name(path)}" for path in self.requires)
        return f"(function({names})   -- {self.file}.lua\n{self._sized}\nend)({given})"

    @property
    def _sized(self) -> str:
        """The text, in which the module's table has room for its functions from the beginning."""
        name = _name(self.file)
        functions = re.findall(rf"^function {name}\.(\w+)", self.text, re.MULTILINE)
        return self.text.replace(
            f"\nlocal {name} = {{}}\n", f"\nlocal {name} = {_table(functions)}\n"
        )

    def check(self, known: Set[str]) -> None:
        """Raise UndeclaredModule if the code uses a `known` module without requiring it."""
        code = _NO_CODE.sub("''", self.text)
        own = {*map(_name, self.requires), *_LOCAL.findall(code)}
        for name in _TABLE.findall(code):
            if name in known and name not in own:
                raise UndeclaredModule(self.file, name)

    def unused(self) -> list[str]:
        """Return the modules that the file requires and does not use."""
        used = {*_TABLE.findall(_NO_CODE.sub("''", self.text))}
        return [path for path in self.requires if _name(path) not in used]


def load(file: str, read: Reader) -> Source:
    """Reads a Lua file, and lists the paths of the modules that its header requires."""
    text = read(file)
    paths = ", ".join(_REQUIRES.findall(text)).split(",")
    return Source(file, text, tuple(path.strip() for path in paths if path.strip()))


def modules_of(sources: Iterable[Source], read: Reader) -> tuple[Source, ...]:
    """Loads the modules that these files require, dependencies first; raises if one is missing."""
    ordered: dict[str, Source] = {}

    def add(path: str, above: tuple[str, ...]) -> None:
        if path in above:
            raise CyclicModules(f"lib/{path}", " -> ".join([*above[above.index(path) :], path]))
        if path in ordered:
            return
        try:
            source = load(f"lib/{path}", read)
        except FileNotFoundError as missing:
            raise UnknownModule(user.get(path, path), path) from missing
        for needed in source.requires:
            user.setdefault(needed, source.file)
            add(needed, (*above, path))
        ordered[path] = source

    user: dict[str, str] = {}
    for source in sources:
        for path in source.requires:
            user.setdefault(path, source.file)
            add(path, ())
    return tuple(ordered.values())


def compose(sources: Iterable[Source], modules: Iterable[Source]) -> str:
    """Generates Lua code that loads modules into a table. Raises UndeclaredModule."""
    modules = tuple(modules)
    known = {_name(module.file) for module in modules}
    for source in (*modules, *sources):
        source.check(known)
    filled = (f"modules.{_name(module.file)} = {module.expression}\n" for module in modules)
    return f"local modules = {_table(_name(module.file) for module in modules)}\n{''.join(filled)}"


def _table(names: Iterable[str]) -> str:
    """A table with room for these fields: scripts make it in each call, and growing takes time."""
    return "{" + ", ".join(f"{name} = false" for name in names) + "}"


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


@cache
def text_of(file: str) -> str:
    """Returns the Lua code of a file in `lua/`, by path without ending; generates `lib/parts`."""
    if file == "lib/parts":
        return lua_parts()
    return (resources.files("app.store") / "lua" / f"{file}.lua").read_text(encoding="utf-8")


class Library(NamedTuple):
    """All transitions as functions that a server keeps: made once, and not for each call.

    The names of the functions contain a digest of their text: those of several versions of this
    program may be loaded at once, and each version calls its own.
    """

    mark: str
    body: str

    def function(self, verb: str) -> str:
        """Return the name under which Redis registers the Lua function of a verb."""
        return f"{PREFIX}{self.mark}_{verb}"

    def text(self, since: int) -> str:
        """Generate the Lua code of the library to load; its name contains the time in ms."""
        registered = "".join(map(self._registered, VERBS))
        return f"#!lua name={PREFIX}{since}_{self.mark}\n{self.body}{registered}"

    def _registered(self, verb: Verb) -> str:
        flags = "{'allow-oom'}" if verb in _MAKES_ROOM else "{}"
        return (
            f"redis.register_function{{function_name = '{self.function(verb)}', flags = {flags},\n"
            "  callback = function(keys, argv)\n"
            f"    return verbs.{verb}(modules.transaction.begin(keys, argv))\n  end}}\n"
        )


@lru_cache(maxsize=4)  # takes 0.1 s, and a process makes several stores
def library(read: Reader = text_of) -> Library:
    """Builds the library of all Lua functions from the files that `read` returns."""
    verbs = [_load(verb, read) for verb in VERBS]
    named = zip(VERBS, verbs, strict=True)
    functions = "".join(f"verbs.{verb} = {source.expression}\n" for verb, source in named)
    body = f"{_modules(verbs, read)}local verbs = {{}}\n{functions}"
    return Library(sha1(body.encode()).hexdigest()[:16], body)  # noqa: S324 - a digest, no seal


def script(verb: Verb, read: Reader = text_of) -> str:
    """Builds a script with one Lua function, for a server without functions.

    That is Redis 6, or a server whose ACL forbids them.
    """
    source = _load(verb, read)
    call = f"{source.expression}(modules.transaction.begin(KEYS, ARGV))"
    return f"{_modules([source], read)}return {call}\n"


def file_of(verb: Verb) -> str:
    """Returns the path of a verb's file in `lua/`, without the ending. Raises KeyError."""
    return _FILES[verb]


def _load(verb: Verb, read: Reader) -> Source:
    return load(file_of(verb), read)


def _modules(verbs: list[Source], read: Reader) -> str:
    return compose(verbs, modules_of(verbs, read))
