"""Conversations of a flow, and in which folders each is spoken."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import NamedTuple

from app.frontends.flow_children import agent_of, parts_of, steps_of
from app.frontends.flow_names import conversation
from leadhand.flow_documents import FlowDefinition, FlowDocument, ResetStep


class Moved(NamedTuple):
    """A step that goes on with a conversation in another folder than the one where it began."""

    path: str
    agent: str
    identifier: str
    folder: str | None
    #: The first step that speaks in it, and where.
    began: str
    began_in: str


def moved(document: FlowDocument) -> Iterator[Moved]:
    """Every one of them, in subflows too.

    Where the flow forgets a conversation somewhere, it may begin anew in any folder.
    """
    for path, flow in parts_of(document):
        yield from _moved_in(path, flow)


def _moved_in(before: str, flow: FlowDefinition) -> Iterator[Moved]:
    steps = list(steps_of(flow))
    forgotten = {_talk(flow, one.step) for one in steps if isinstance(one.step, ResetStep)}
    began: dict[str, tuple[str, str]] = {}
    for one in steps:
        talk = _talk(flow, one.step)
        if talk is None or talk in forgotten:
            continue
        given: str | None = getattr(one.step, "working_folder", None)
        folder = posixpath.normpath(given or ".")
        first, first_in = began.setdefault(talk, (one.path, folder))
        if folder != first_in:
            agent = agent_of(flow, str(getattr(one.step, "agent_type", "")))
            identifier = str(getattr(one.step, "identifier", ""))
            yield Moved(f"{before}{one.path}", agent, identifier, given, first, first_in)


def _talk(flow: FlowDefinition, step: object) -> str | None:
    """The conversation that a step speaks in, if it does."""
    type_, identifier = getattr(step, "agent_type", None), getattr(step, "identifier", None)
    if type_ is None or identifier is None:
        return None
    return conversation(agent_of(flow, type_), type_, identifier)
