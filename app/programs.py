"""Process-local cache of programs and immutable session facts, with signature checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from app.core.addresses import SessionRef
from app.core.environment import Definitions, SessionEnvironment, parse_definitions
from app.core.program import Program
from app.errors import EnvironmentSealed, SpecForeign
from app.security.signatures import (
    Spec,
    decrypt,
    is_command_seal,
    is_request_seal,
    is_signed,
    mark_of,
    program_id,
    sign,
)
from app.settings import Settings
from app.store.store import Store
from leadhand.errors import ProgramNewer, SessionUnknown

#: Sizes of the caches.
SESSIONS = 4096
PROGRAMS = 256


class Facts(NamedTuple):
    """The immutable facts of a session."""

    program: str
    kind: str
    place: str
    cwd: str | None
    #: The session whose step started this one.
    parent: str | None = None
    #: The address of that step.
    parent_step: str = ""
    #: Signature of the facts that decide what runs; empty if unsigned.
    signature: str = ""
    #: The lock of its working folder.
    folder: str = ""
    #: The mark of its environment, which the signature covers; empty without one.
    environment: str = ""
    #: The same of its folder's definitions.
    definitions: str = ""
    #: The signature that allows it to bring commands; empty if it may not.
    free: str = ""


class _Loaded(NamedTuple):
    """A program as read from Redis; it may be displayed, but only a genuine one may run."""

    program: Program
    #: Whether the document matches its signed hash.
    genuine: bool


#: The fields of a session's hash that hold its facts.
_FACTS = (
    "program", "kind", "place", "cwd", "parent", "signature", "folder", "environment",
    "definitions", "free",
)  # fmt: skip
_PROGRAM = TypeAdapter(Program)


class Registry:
    """Reads programs and facts once and caches them."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._secret = settings.secret
        self._accepted = settings.secrets
        self.facts = lru_cache(maxsize=SESSIONS)(self._read_facts)
        self._programs = lru_cache(maxsize=PROGRAMS)(self._read_program)
        self._environments = lru_cache(maxsize=PROGRAMS)(self._read_environment)
        self._definitions = lru_cache(maxsize=PROGRAMS)(self._read_definitions)
        self._signed_here = lru_cache(maxsize=SESSIONS)(self._is_signed_here)

    def program(self, program: str) -> Program:
        """Returns the program with this hash, from the cache or the store. Raises SessionUnknown.

        Raises SessionUnknown if it was deleted with its last session, and ProgramNewer if only a
        newer version of Leadhand can read it.
        """
        return self._programs(program).program

    def ref(self, session: str) -> SessionRef:
        """Return the ids of a session and of the root of its tree. Raises SessionUnknown."""
        ref = self._store.ref(session)
        if ref is None:
            raise SessionUnknown(session)
        return ref

    def forget_facts(self) -> None:
        """Clear this process's cache of session facts, after a place or program has changed."""
        self.facts.cache_clear()

    def signature(
        self,
        ref: SessionRef,
        program: str,
        *,
        cwd: str,
        place: str,
        environment: str = "",
        definitions: str = "",
    ) -> str:
        """Return a signature over a session's program, folder, place and definitions.

        Also over its environment, by its mark.
        """
        spec = Spec(ref.id, ref.root, program, cwd, place, environment, definitions)
        return sign(spec, secret=self._secret)

    def check_request(self, ref: SessionRef, request: str, fields: Mapping[str, str]) -> None:
        """Raise SpecForeign unless `fields` has a valid signature of the document `request`."""
        seal = fields.get("request_seal", "")
        if not seal:
            raise SpecForeign(ref.id, "its stored document was not signed")
        if not any(
            is_request_seal(ref.id, ref.root, request, seal, secret=secret)
            for secret in self._accepted
        ):
            raise SpecForeign(ref.id, "its stored document does not match its signature")

    def may_bring_commands(self, ref: SessionRef) -> bool:
        """Whether a session's children may have commands: its token had the scope `exec:free`."""
        return self.is_free(ref, self._store.values(ref, "session", ["free"]))

    def is_free(self, ref: SessionRef, fields: Mapping[str, str]) -> bool:
        """Whether a session with these stored fields may have commands, by their signature."""
        seal = fields.get("free", "")
        return any(
            is_command_seal(ref.id, ref.root, seal, secret=secret) for secret in self._accepted
        )

    def verified_program(self, ref: SessionRef, facts: Facts) -> Program:
        """Returns the session's program. Raises SpecForeign unless its signature is valid."""
        spec = Spec(
            ref.id,
            ref.root,
            facts.program,
            facts.cwd or "",
            facts.place,
            facts.environment,
            facts.definitions,
        )
        if not facts.signature:
            raise SpecForeign(ref.id, "it was not signed")
        if not self._signed_here(spec, facts.signature):
            why = "its signature does not match this worker's LEADHAND_SECRET"
            raise SpecForeign(ref.id, why + ("; submit --env again" if facts.environment else ""))
        found = self._programs(facts.program)
        if not found.genuine:
            raise SpecForeign(ref.id, f"program {facts.program} was changed after it was signed")
        return found.program

    def program_of(self, ref: SessionRef, fields: Mapping[str, str]) -> Program:
        """Return a session's program by its stored fields. Raises SpecForeign if unsigned."""
        return self.verified_program(ref, _facts_of(ref, fields))

    def sign_for_place(self, ref: SessionRef, fields: Mapping[str, str], place: str) -> str:
        """Return a session's signature for another place; '' if its present one is invalid."""
        facts = _facts_of(ref, fields)
        try:
            self.verified_program(ref, facts)
        except SpecForeign:
            return ""
        return self.signature(
            ref,
            facts.program,
            cwd=facts.cwd or "",
            place=place,
            environment=facts.environment,
            definitions=facts.definitions,
        )

    def sign_for_definitions(
        self, ref: SessionRef, fields: Mapping[str, str], mark: str, *, program: str | None
    ) -> str:
        """Return a session's signature for other definitions; '' if its present one is invalid.

        It covers the other `program`, if the session adopts one.
        """
        facts = _facts_of(ref, fields)
        try:
            self.verified_program(ref, facts)
        except SpecForeign:
            return ""
        return self.signature(
            ref,
            program or facts.program,
            cwd=facts.cwd or "",
            place=facts.place,
            environment=facts.environment,
            definitions=mark,
        )

    def environment(self, ref: SessionRef, mark: str) -> SessionEnvironment:
        """Return a session's decrypted environment. Raises EnvironmentSealed.

        It is empty without a mark.
        """
        return self._environments(ref, mark) if mark else SessionEnvironment()

    def definitions(self, ref: SessionRef, mark: str) -> Definitions | None:
        """Return a session's stored definitions by digest, or None. Raises SpecForeign."""
        return self._definitions(ref, mark) if mark else None

    def _read_definitions(self, ref: SessionRef, mark: str) -> Definitions:
        text = self._store.copies().definitions(ref)
        found = parse_definitions(text) if text else None
        if found is None or found.mark != mark:
            raise SpecForeign(ref.id, "the definitions of its folder were changed after the submit")
        return found

    def _read_environment(self, ref: SessionRef, mark: str) -> SessionEnvironment:
        stored = self._store.copies().environment(ref)
        if mark_of(stored) != mark:
            raise EnvironmentSealed(ref.id)
        return decrypt(stored, ref, accepted=self._accepted)

    def _is_signed_here(self, spec: Spec, signature: str) -> bool:
        return any(is_signed(spec, signature, secret=secret) for secret in self._accepted)

    def _read_facts(self, ref: SessionRef) -> Facts:
        return _facts_of(ref, self._store.values(ref, "session", _FACTS))

    def _read_program(self, program: str) -> _Loaded:
        text = self._store.program(program)
        if text is None:
            raise SessionUnknown(f"of program {program}")
        try:
            return _Loaded(_PROGRAM.validate_json(text), genuine=program_id(text) == program)
        except ValidationError:
            raise ProgramNewer from None


def _facts_of(ref: SessionRef, fields: Mapping[str, str]) -> Facts:
    if "program" not in fields:
        raise SessionUnknown(ref.id)
    cwd = fields.get("cwd") or None
    parent = json.loads(fields["parent"]) if fields.get("parent") else {}
    return Facts(
        fields["program"],
        fields["kind"],
        fields["place"],
        cwd,
        parent.get("session"),
        parent.get("address", ""),
        fields.get("signature", ""),
        fields.get("folder", ""),
        fields.get("environment", ""),
        fields.get("definitions", ""),
        fields.get("free", ""),
    )
