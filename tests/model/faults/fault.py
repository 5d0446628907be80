"""One planted fault: the text that it changes, and the test that notices it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import resources
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from redis.exceptions import ResponseError

from app.store.script_library import text_of


class Fault(NamedTuple):
    name: str
    #: A file of app/store/lua without its ending, or a module below app.
    file: str
    old: str
    new: str
    #: `walk`, or the test among the programs written by hand.
    found_by: str = "walk"
    #: The walk that is tried first, for it is known to find it.
    seed: int = 0

    def text(self) -> str:
        """The file as it is, without the fault."""
        folder = resources.files("app")
        path = self.file if self.file.endswith(".py") else f"store/lua/{self.file}.lua"
        return (folder / path).read_text(encoding="utf-8")

    def read(self, file: str) -> str:
        """The files of app/store/lua, one of them with the fault."""
        text = text_of(file)
        return text.replace(self.old, self.new) if file == self.file else text

    def module(self) -> ModuleType:
        """The module below app with the fault."""
        module = ModuleType(f"app.{self.file.removesuffix('.py').replace('/', '.')}")
        code = compile(self.text().replace(self.old, self.new), self.file, "exec")
        exec(code, module.__dict__)
        return module


def noticed(tries: Iterator[Callable[[], Any]]) -> bool:
    """Whether one of them fails as a test fails; a script that breaks is no proof."""
    for attempt in tries:
        try:
            attempt()
        except (AssertionError, KeyError, pytest.fail.Exception):
            return True
        except ResponseError as broken:
            if "stack overflow" not in str(broken):
                raise
            return True
    return False
