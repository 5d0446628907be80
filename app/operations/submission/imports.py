"""Imports sessions from the store of a state folder of another time or place, stopped or ended."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from pydantic import JsonValue

from app.artifacts.folder import ArtifactFolder, Limits
from app.domain.environment.definitions import parse_definitions
from app.domain.environment.session import SessionEnvironment
from app.domain.ids import SessionRef, lock_name
from app.domain.program import Step
from app.domain.records import StoredProgram
from app.domain.routing import stored_program
from app.domain.states import ENDED, FINAL
from app.errors import LeadhandError, SpecForeign
from app.operations.registry import Registry
from app.security import environment_cipher
from app.security.session_signatures import program_id
from app.settings import Settings
from app.store.imports import Due, Imports
from app.store.store import Store

#: What became of a session: a call before imported it, another has its id, it still runs ...
Word = Literal["imported", "exists", "taken", "torn", "at work", "unreadable"]
#: The fields of inputs that name what runs.
_RUNS = ("command", "callable", "rubric", "tool", "agent", "flow", "function")

_DIGEST = re.compile(r"[0-9a-f]{64}")
#: The fields of whom a session reports to, and whose it is.
_CONTACTS = ("webhook", "rings", "rung", "token")


class Found(NamedTuple):
    """A session that can be imported, with those that it started."""

    session: str
    status: str
    label: str
    folder: str
    #: The number of sessions of its tree.
    sessions: int
    #: What would run again after a resume; empty if it cannot be resumed.
    runs: list[str]


class Origin(NamedTuple):
    """A store, and the files beside it."""

    store: Store
    registry: Registry
    folder: Path
    #: Whether this user created it here: only then its environments and definitions are kept.
    is_own: bool


class ImportSessions:
    """Lists and copies the sessions of another store."""

    def __init__(
        self, origin: Origin, store: Store, registry: Registry, settings: Settings
    ) -> None:
        self._origin = origin
        self._from = origin.store.part(Imports)
        self._store = store
        self._to = store.part(Imports)
        self._registry = registry
        self._settings = settings

    def found(self) -> Iterator[Found]:
        """Yield a summary of each session without a parent in the other store, oldest first."""
        for root in self._from.roots():
            tree = self._from.tree(root)
            fields = self._origin.store.fields(root)
            runs = dict[str, None]()
            for ref in tree:
                runs |= dict.fromkeys(self._runs(ref))
            yield Found(
                root.id,
                fields.get("status", ""),
                fields.get("label") or self._task(root) or fields.get("name", ""),
                fields.get("cwd", ""),
                len(tree),
                list(runs),
            )

    def _task(self, ref: SessionRef) -> str:
        """The task of the document; '' for one without."""
        try:
            return str(json.loads(self._origin.store.copies().request(ref) or "{}")["task"])
        except (ValueError, LookupError, TypeError):
            return ""

    def import_tree(self, session: str) -> dict[str, Word]:
        """Import an ended session and all that it started; returns the result for each of them.

        Nothing of a tree is imported while a session of it works. A call that was interrupted can
        be repeated.
        """
        tree = self._from.tree(SessionRef(session, session))
        statuses = {one: self._origin.store.fields(one).get("status") for one in tree}
        if any(status not in ENDED for status in statuses.values()):
            return {one.id: "at work" for one in tree}
        programs = [self._program(self._origin.store.fields(one)) for one in tree]
        if None in programs:
            return {one.id: "unreadable" for one in tree}
        due = self._from.due(tree)
        return {
            one.id: self._import(one, due[one.id], program)
            for one, program in zip(tree, programs, strict=True)
            if program is not None
        }

    def _import(self, ref: SessionRef, due: Due, content: StoredProgram) -> Word:
        known = self._store.ref(ref.id)
        fields = self._origin.store.fields(ref)
        if known is not None:
            same = known == ref and self._store.fields(ref).get("nonce") == fields.get("nonce")
            return "exists" if same else "taken"
        self._copy_files(ref)
        copy = self._from.copy(ref, self._to)
        texts = self._texts(ref, fields)
        arguments: dict[str, JsonValue] = {
            "root": ref.root,
            "program": fields["program"],
            "routes": dict(content.routes),
            "copied": copy.mark,
            "counts": {**copy.counts},
            "fields": {**self._fields(ref, fields, texts)},
            "errands": [*due.errands],
            "leases": {**due.leases},
            "store": self._store.expected_id(),
            **texts,
        }
        reply = self._store.run(
            "import", ref, fields["program"], arguments, outcome=content.document
        )
        words: tuple[Word, ...] = get_args(Word)
        # Another store took the place of this one, or the copy expired: nothing was imported.
        return next((word for word in words if word == reply.word), "torn")

    def _program(self, fields: Mapping[str, str]) -> StoredProgram | None:
        """A session's program with routes of its own; None if it cannot be read."""
        name = fields.get("program", "")
        text = self._origin.store.program(name)
        if text is None or program_id(text) != name:
            return None
        try:
            return StoredProgram(text, stored_program(self._origin.registry.program(name)).routes)
        except LeadhandError:  # of a newer version
            return None

    def _texts(self, ref: SessionRef, fields: Mapping[str, str]) -> dict[str, str]:
        """The environment and the definitions of a session that this user created."""
        if not self._origin.is_own or fields["status"] in FINAL:
            return {}
        texts = dict[str, str]()
        with suppress(SpecForeign):  # one whose secret is lost
            environment = self._origin.registry.environment(ref, fields.get("environment", ""))
            texts["environment"] = self._encrypted(ref, environment)
        with suppress(SpecForeign):
            definitions = self._origin.registry.definitions(ref, fields.get("definitions", ""))
            texts["definitions"] = "" if definitions is None else definitions.text
        return texts

    def _encrypted(self, ref: SessionRef, environment: SessionEnvironment) -> str:
        if environment.is_empty:
            return ""
        return environment_cipher.encrypt(environment, ref, secret=self._settings.secret)

    def _fields(
        self, ref: SessionRef, fields: Mapping[str, str], texts: Mapping[str, str]
    ) -> dict[str, str]:
        """The fields that differ here: who signed it, its place, and nobody to report to."""
        place, cwd = self._settings.place, fields.get("cwd", "")
        environment = environment_cipher.mark_of(texts.get("environment", ""))
        definitions = texts.get("definitions", "")
        mark = parse_definitions(definitions).mark if definitions else ""
        request = self._origin.store.copies().request(ref) or ""
        return {
            "nonce": fields.get("nonce", ""),
            "parent": self._parent(ref, fields.get("parent", "")),
            "place": place,
            "folder": lock_name(f"folder:{place}:{cwd}") if fields.get("folder") else "",
            "listed_in": fields.get("listed_in") or cwd,
            "environment": environment,
            "definitions": mark,
            "signature": self._registry.signature(
                ref,
                fields["program"],
                cwd=cwd,
                place=place,
                environment=environment,
                definitions=mark,
            ),
            "free": self._registry.seal_commands(ref) if fields.get("free") else "",
            "export": "1" if self._settings.export_dir else "",
            **self._registry.request_seal(ref, request),
            **dict.fromkeys(_CONTACTS, ""),
        }

    def _parent(self, ref: SessionRef, text: str) -> str:
        """The field that names the parent, with the base of its keys in this store."""
        if not text:
            return ""
        parent = json.loads(text)
        base = self._store.keys.base(SessionRef(parent["session"], ref.root))
        return json.dumps({**parent, "base": base})

    def _runs(self, ref: SessionRef) -> Iterator[str]:
        """What the session would run after a resume, as a person would write it."""
        fields = self._origin.store.fields(ref)
        if fields.get("status") in FINAL:
            return
        try:
            program = self._origin.registry.program(fields["program"])
        except (LeadhandError, KeyError):
            return
        for _, node in program.walk():
            if isinstance(node, Step):
                yield from _named(node.inputs)

    def _copy_files(self, ref: SessionRef) -> None:
        """Copy the artifacts and spill files of a session, before anything refers to them."""
        artifacts = ArtifactFolder(
            self._settings.artifacts_root,
            Limits(self._settings.artifact_max, self._settings.artifacts_max),
        )
        old = ArtifactFolder(self._origin.folder / "artifacts", Limits(0, 0))
        for digest in self._origin.store.names(ref, "artifacts"):
            path = old.path_of(digest) if _DIGEST.fullmatch(digest) else None
            if path is not None:
                artifacts.put_file(digest, path)
        spill = self._origin.folder / "spill" / ref.id
        if spill.is_dir():
            shutil.copytree(
                spill, Path(self._settings.spill, ref.id), symlinks=True, dirs_exist_ok=True
            )


def _named(inputs: JsonValue) -> Iterator[str]:
    """The commands, functions, tools and agents in the inputs of a step."""
    if isinstance(inputs, list):
        for one in inputs:
            yield from _named(one)
    if isinstance(inputs, dict):
        for name, value in inputs.items():
            if not isinstance(value, str):
                yield from _named(value)
            elif name in _RUNS:
                yield value if name == "command" else f"{name} {value}"
