"""Creates sessions, and sends a program only if the store may not have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from pydantic import JsonValue

from app.domain.ids import SessionRef
from app.domain.records import NewSession, Reply, StoredProgram
from app.store.calls import Call
from app.store.recent import Recent
from app.store.script_library import Verb

#: The number of programs that a process remembers as stored.
KNOWN = 1024


#: Runs a transition on several sessions in one round trip; takes session, program and arguments.
RunEach = Callable[[Verb, Sequence[tuple[SessionRef, str, Call]]], list[Reply]]


class _Run(Protocol):
    def __call__(
        self,
        verb: Verb,
        ref: SessionRef,
        program: str,
        arguments: Mapping[str, JsonValue],
        *,
        outcome: str = "",
    ) -> Reply: ...


class Creations:
    """Calls the transitions that create sessions.

    A stored program may be deleted with its last session at any time; the store reports that, and
    the program is sent again.
    """

    def __init__(self, run: _Run, run_each: RunEach) -> None:
        self._run = run
        self._run_each = run_each
        #: Hashes of programs that were stored.
        self._known = Recent[str, bool](KNOWN)

    def create(self, new: NewSession, store: str | None) -> Reply:
        """Create a session, sending its program only if the store lacks it; returns the reply.

        `store` is the id of the expected store.
        """
        arguments = _arguments(new, store)
        reply: Reply | None = None
        if self._known.get(new.program):
            reply = self._run("create", new.ref, new.program, arguments)
        if reply is None or reply.word == "no_program":
            content = new.content()
            arguments |= _routes(content)
            reply = self._run("create", new.ref, new.program, arguments, outcome=content.document)
        if reply.word == "created":
            self._known[new.program] = True
        return reply

    def create_all(self, news: Sequence[NewSession], store: str | None) -> list[Reply]:
        """Create sessions in one round trip, each one atomic by itself; returns a reply for each.

        A program is sent with its first session only, so a later one may get `no_program` if that
        one was refused: create it by itself. A session that competes with another one of these for
        a key or a label has its program with it, since their order decides.
        """
        sent, calls = set[str](), list[tuple[SessionRef, str, Call]]()
        claims = Counter(claim for new in news for claim in _claims(new))
        for new in news:
            arguments, document = _arguments(new, store), ""
            competes = any(claims[claim] > 1 for claim in _claims(new))
            if (competes or new.program not in sent) and not self._known.get(new.program):
                content = new.content()
                arguments |= _routes(content)
                document = content.document
            sent.add(new.program)
            calls.append((new.ref, new.program, Call(arguments, document)))
        replies = self._run_each("create", calls)
        for new, reply in zip(news, replies, strict=True):
            if reply.word == "created":
                self._known[new.program] = True
        return replies

    def fork(self, new: NewSession, store: str | None, more: Mapping[str, JsonValue]) -> Reply:
        """Create a session from records that were copied from another one; returns the reply."""
        content = new.content()
        arguments = {**_arguments(new, store), **_routes(content), **more}
        return self._run("steps_fork", new.ref, new.program, arguments, outcome=content.document)


def _claims(new: NewSession) -> Iterator[tuple[str, str]]:
    """The names of which only one session can have each."""
    for kind, name in (("key", new.idempotency_key), ("label", new.fields.get("label"))):
        if name:
            yield kind, name


def _routes(content: StoredProgram) -> dict[str, JsonValue]:
    return {"routes": dict(content.routes)}


def _arguments(new: NewSession, store: str | None) -> dict[str, JsonValue]:
    """The arguments that both transitions have, without the program."""
    arguments: dict[str, JsonValue] = {
        "root": new.ref.root,
        "program": new.program,
        "fields": dict(new.fields),
        "body": new.body_hash,
        "request": new.request,
        "environment": new.environment,
        "definitions": new.definitions,
        "store": store,
    }
    if new.idempotency_key is not None:
        arguments["key"] = new.idempotency_key
    if new.parent is not None:
        arguments["parent"] = dict(new.parent)
    if new.warnings:
        arguments["warnings"] = [*new.warnings]
    if new.limits is not None:
        arguments["limits"] = dict(new.limits)
    if new.owner is not None:
        arguments["owner"] = {k: v for k, v in new.owner.items() if v is not None}
    return arguments
