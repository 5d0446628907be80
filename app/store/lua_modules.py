"""Composes Lua modules into one text, each behind the modules that it requires.

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
from typing import NamedTuple

#: Reads one file of `lua/` by its path without the ending.
Reader = Callable[[str], str]

_REQUIRES = re.compile(r"^--- @requires (.+)$", re.MULTILINE)
#: Comments and strings.
_NO_CODE = re.compile(r"--[^\n]*|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"")
#: A table whose field is used, and which is not a field itself.
_TABLE = re.compile(r"(?<![\w.:])([a-z_]\w*)\s*(?:\.(?!\.)|\[)")
_LOCAL = re.compile(r"\blocal\s+(?:function\s+)?(\w+)")


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
