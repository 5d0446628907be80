"""Compiles Lua 5.1 as Redis does, and reads from its bytecode which names a text uses."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import lupa.lua51

_HEADER = 12
_GET_GLOBAL, _SET_GLOBAL = 5, 7
_NIL, _BOOLEAN, _NUMBER, _STRING = 0, 1, 3, 4


@dataclass
class Code:
    """What a chunk and the functions in it use."""

    #: Local names of the chunk itself, not of its functions.
    locals: list[str] = field(default_factory=list)
    #: Global names that are read or written anywhere in it.
    globals: set[str] = field(default_factory=set)


def compile_lua(text: str) -> Code:
    """Compile a text; an error of its syntax is a `lupa.LuaSyntaxError`."""
    runtime = lupa.lua51.LuaRuntime(encoding=None)
    dump = runtime.eval(b"function(text) return string.dump(assert(loadstring(text))) end")
    code = Code()
    code.locals = _Reader(dump(text.encode()), _HEADER).function(code.globals)
    return code


class _Reader:
    """Reads the format of Lua 5.1's `luac` with 64-bit sizes and 32-bit integers."""

    def __init__(self, dump: bytes, at: int) -> None:
        self._dump = dump
        self._at = at

    def _take(self, form: str) -> int:
        (value,) = struct.unpack_from(f"<{form}", self._dump, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def _integers(self) -> list[int]:
        return [self._take("I") for _ in range(self._take("I"))]

    def _text(self) -> str:
        size = self._take("Q")
        text = self._dump[self._at : self._at + size]
        self._at += size
        return text.rstrip(b"\0").decode(errors="replace")

    def _constant(self) -> str:
        kind = self._take("B")
        if kind == _STRING:
            return self._text()
        self._at += {_NIL: 0, _BOOLEAN: 1, _NUMBER: 8}[kind]
        return ""

    def function(self, used: set[str]) -> list[str]:
        """Read one function: its local names; the globals of it and those in it go to `used`."""
        self._text()
        self._at += 4 + 4 + 4  # its lines; upvalues, parameters, varargs and stack
        instructions = self._integers()
        constants = [self._constant() for _ in range(self._take("I"))]
        for instruction in instructions:
            if instruction & 0x3F in (_GET_GLOBAL, _SET_GLOBAL):
                used.add(constants[instruction >> 14])
        for _ in range(self._take("I")):
            self.function(used)
        self._integers()  # the line of each instruction
        names = []
        for _ in range(self._take("I")):
            names.append(self._text())
            self._at += 8
        for _ in range(self._take("I")):
            self._text()
        return names
