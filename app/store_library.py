"""The transitions as Redis takes them: a library of functions, or one script for each.

Files of `app/lua` whose names begin with `_` are what all transitions are built on, or some of
them; every other one is a verb.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha1
from importlib import resources
from typing import Literal, NamedTuple, get_args

from app.keys import lua_names

Verb = Literal[
    "create", "claim", "beat", "settle", "release", "park", "answer", "control", "expire",
    "rehint", "due", "errand_done", "delete", "take_hook", "settle_hook", "limit",
    "fsck_steps", "fsck_session", "fsck_list", "fsck_locks", "fsck_index", "fsck_keys",
]  # fmt: skip
VERBS: tuple[Verb, ...] = get_args(Verb)

#: The files that every transition is built on, in this order.
_FOUNDATION = (
    "_begin", "_address", "_budget", "_hooks", "_quota", "_locks", "_ready", "_turns", "_session",
    "_outcome", "_work",
)  # fmt: skip
#: What one verb is built on besides.
_MORE = {"control": ("_anew", "_adopt")}

#: Gives the text of one file of `app/lua`, without its ending.
Reader = Callable[[str], str]

#: What a server may do while it is full: these make room, or find what will; the rest is refused
#: as a whole.
_MAKES_ROOM = frozenset[Verb]({"due", "errand_done", "delete"})

#: What the names of all our libraries begin with.
PREFIX = "leadhand_"


@cache
def text_of(file: str) -> str:
    """The text of one file of `app/lua`."""
    return (resources.files("app") / "lua" / f"{file}.lua").read_text(encoding="utf-8")


class Library(NamedTuple):
    """All transitions as functions that a server keeps: made once, and not for each call.

    Functions are named for the text that they are of: those of several versions of this program
    may be loaded at once, and each version calls its own.
    """

    mark: str
    body: str

    def function(self, verb: str) -> str:
        """The name under which the server knows a verb."""
        return f"{PREFIX}{self.mark}_{verb}"

    def text(self, since: int) -> str:
        """What is loaded; the library's own name says since when (Unix time in ms)."""
        registered = "".join(map(self._registered, VERBS))
        return f"#!lua name={PREFIX}{since}_{self.mark}\n{self.body}{registered}"

    def _registered(self, verb: Verb) -> str:
        flags = "{'allow-oom'}" if verb in _MAKES_ROOM else "{}"
        return (
            f"redis.register_function{{function_name = '{self.function(verb)}', flags = {flags},\n"
            "  callback = function(keys, argv)\n"
            f"    begin(keys, argv)\n    return verbs.{verb}()\n  end}}\n"
        )


def library(read: Reader = text_of) -> Library:
    """The library of what `read` gives."""
    verbs = "".join(
        f"verbs.{verb} = function()\n{''.join(_own(verb, read))}end\n" for verb in VERBS
    )
    body = f"{_foundation(read)}local verbs = {{}}\n{verbs}"
    return Library(sha1(body.encode()).hexdigest()[:16], body)  # noqa: S324 - a mark, not a seal


def script(verb: str, read: Reader = text_of) -> str:
    """One transition for a server that keeps no functions: Redis 6, or one that forbids them."""
    # Lua takes 200 local names a function: the foundation and what is built on it are two.
    own = "".join(_own(verb, read))
    given = "local given = {KEYS, ARGV}\n"
    return f"{given}{_foundation(read)}begin(given[1], given[2])\nreturn (function()\n{own}end)()\n"


def _foundation(read: Reader) -> str:
    return lua_names() + "".join(_texts(_FOUNDATION, read))


def _own(verb: str, read: Reader) -> Iterator[str]:
    audits = ["_fsck"] if verb.startswith("fsck_") else []
    return _texts([*_MORE.get(verb, ()), *audits, verb], read)


def _texts(files: Sequence[str], read: Reader) -> Iterator[str]:
    return (read(file) + "\n" for file in files)
