"""Composes the transitions for Redis: one library of functions, or one script per verb.

`lua/` holds a file per verb, `lua/audit/` the verbs of the audit, `lua/tree/` those of what a tree
of sessions shares, `lua/stack/` those of stacks, `lua/guard/` those of Stop guards, `lua/steps/`
skips and forks, and `lua/lib/` the modules that they require. The file of a verb returns a function
of the transaction, `tx`.
"""

from __future__ import annotations

from functools import cache, lru_cache
from hashlib import sha1
from importlib import resources
from typing import Literal, NamedTuple, get_args

from app.store.keys import lua_parts
from app.store.lua_modules import Reader, Source, compose, load, modules_of

Verb = Literal[
    "create", "claim", "beat", "settle", "release", "park", "answer", "control", "expire",
    "notify", "due", "outbox_done", "delete", "webhook_claim", "webhook_settle", "limit", "accept",
    "hold_name", "output", "inbox_add", "inbox_take",
    "tree_lock", "tree_unlock", "tree_look", "tree_kv",
    "plan_edit", "plan_report", "plan_fact", "plan_started", "plan_look",
    "plan_workspace", "own_folder", "steps_skip", "steps_fork", "annotate",
    "stack_push", "stack_step", "stack_advance", "stack_finish", "stack_load", "stack_delete",
    "stack_look", "stack_move",
    "guard_begin", "guard_write",
    "audit_steps", "audit_session", "audit_list", "audit_locks", "audit_index", "audit_keys",
]  # fmt: skip
VERBS: tuple[Verb, ...] = get_args(Verb)

#: A full server carries these out: they make room, or find what will. It refuses all others.
_MAKES_ROOM = frozenset[Verb]({"due", "outbox_done", "delete", "stack_delete"})

#: The names of all libraries of this program begin with this.
PREFIX = "leadhand_"


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
    """Returns the path of a verb's file in `lua/`, without the ending."""
    folders = ("audit_", "tree_", "plan_", "stack_", "guard_", "steps_")
    return verb.replace("_", "/", 1) if verb.startswith(folders) else verb


def _load(verb: Verb, read: Reader) -> Source:
    return load(file_of(verb), read)


def _modules(verbs: list[Source], read: Reader) -> str:
    return compose(verbs, modules_of(verbs, read))
