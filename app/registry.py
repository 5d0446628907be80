"""What this process remembers of sessions and programs, and whether it may run them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from app.errors import ProgramNewer, SessionUnknown, SpecForeign
from app.keys import SessionRef
from app.program import Program
from app.settings import Settings
from app.signing import Spec, is_ours, program_id, sign
from app.store import Store

#: Sessions and programs that are remembered at a time.
SESSIONS = 4096
PROGRAMS = 256


class Facts(NamedTuple):
    """What never changes about a session."""

    program: str
    kind: str
    place: str
    cwd: str | None
    #: The session whose step started this one.
    parent: str | None = None
    #: Of all that decides what runs; empty where nobody signed it.
    signature: str = ""
    #: The lock of its working folder.
    folder: str = ""


class _Found(NamedTuple):
    """A program as it lies in Redis: anybody may look at it, only a genuine one is run."""

    program: Program
    #: Whether its document is the one that its name, which is signed, stands for.
    genuine: bool


#: The fields of a session that tell its facts: it has many more, which change.
_TOLD = ("program", "kind", "place", "cwd", "parent", "signature", "folder")
_PROGRAM = TypeAdapter(Program)


class Registry:
    """Read from the store once, and believed as long as it cannot change."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._secret = settings.secret
        self.facts = lru_cache(maxsize=SESSIONS)(self._read_facts)
        self._programs = lru_cache(maxsize=PROGRAMS)(self._read_program)
        self._signed_here = lru_cache(maxsize=SESSIONS)(self._is_ours)

    def program(self, program: str) -> Program:
        """The program of this hash, from memory where it was seen before.

        Raises SessionUnknown where nobody runs it any more, and ProgramNewer.
        """
        return self._programs(program).program

    def ref(self, session: str) -> SessionRef:
        """The session and its root. Raises SessionUnknown."""
        ref = self._store.ref(session)
        if ref is None:
            raise SessionUnknown(session)
        return ref

    def forget_facts(self) -> None:
        """Read anew what is asked next: a session has been bound to another place."""
        self.facts.cache_clear()

    def signature(self, ref: SessionRef, program: str, *, cwd: str, place: str) -> str:
        """What a session is signed with that runs this program there."""
        return sign(Spec(ref.id, ref.root, program, cwd, place), secret=self._secret)

    def genuine(self, ref: SessionRef, facts: Facts) -> Program:
        """The session's program. Raises SpecForeign unless all of it was signed here."""
        spec = Spec(ref.id, ref.root, facts.program, facts.cwd or "", facts.place)
        if not facts.signature:
            raise SpecForeign(ref.id, "it was not signed")
        if not self._signed_here(spec, facts.signature):
            raise SpecForeign(ref.id, "its signature is not of this worker's LEADHAND_SECRET")
        found = self._programs(facts.program)
        if not found.genuine:
            raise SpecForeign(ref.id, f"program {facts.program} was changed after it was signed")
        return found.program

    def signed_anew(self, ref: SessionRef, fields: Mapping[str, str], place: str) -> str:
        """The signature for another place; what we did not sign before stays unsigned."""
        facts = _facts_of(ref, fields)
        try:
            self.genuine(ref, facts)
        except SpecForeign:
            return ""
        return self.signature(ref, facts.program, cwd=facts.cwd or "", place=place)

    def _is_ours(self, spec: Spec, signature: str) -> bool:
        return is_ours(spec, signature, secret=self._secret)

    def _read_facts(self, ref: SessionRef) -> Facts:
        return _facts_of(ref, self._store.values(ref, "session", _TOLD))

    def _read_program(self, program: str) -> _Found:
        text = self._store.program(program)
        if text is None:
            raise SessionUnknown(f"of program {program}")
        try:
            return _Found(_PROGRAM.validate_json(text), genuine=program_id(text) == program)
        except ValidationError:
            raise ProgramNewer(program) from None


def _facts_of(ref: SessionRef, fields: Mapping[str, str]) -> Facts:
    if "program" not in fields:
        raise SessionUnknown(ref.id)
    cwd = fields.get("cwd") or None
    parent = json.loads(fields["parent"])["session"] if fields.get("parent") else None
    return Facts(
        fields["program"],
        fields["kind"],
        fields["place"],
        cwd,
        parent,
        fields.get("signature", ""),
        fields.get("folder", ""),
    )
