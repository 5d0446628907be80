"""Finds flow conversations that continue in another working folder."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.compiler.node_ids import conversation
from leadhand.flows.agents import agent_of
from leadhand.flows.documents import FlowDefinition, ResetStep
from leadhand.flows.structure import Placed


class FolderChange(NamedTuple):
    """A step that continues a conversation in another folder than the one where it began."""

    path: str
    agent: str
    identifier: str
    folder: str | None
    #: The first step of the conversation, and its folder.
    began: str
    began_in: str


def folder_changes(
    before: str, flow: FlowDefinition, steps: Sequence[Placed]
) -> Iterator[FolderChange]:
    """Yields the steps that continue a conversation in another folder than the one it began in.

    A conversation that the flow resets somewhere may begin again in any folder.
    """
    forgotten = {
        _conversation_of(flow, one.step) for one in steps if isinstance(one.step, ResetStep)
    }
    began: dict[str, tuple[str, str]] = {}
    for one in steps:
        spoken = _conversation_of(flow, one.step)
        if spoken is None or spoken in forgotten:
            continue
        working_folder: str | None = getattr(one.step, "working_folder", None)
        folder = posixpath.normpath(working_folder or ".")
        first, first_in = began.setdefault(spoken, (one.path, folder))
        if folder != first_in:
            agent = agent_of(flow, str(getattr(one.step, "agent_type", "")))
            identifier = str(getattr(one.step, "identifier", ""))
            path = f"{before}{one.path}"
            yield FolderChange(path, agent, identifier, working_folder, first, first_in)


def _conversation_of(flow: FlowDefinition, step: object) -> str | None:
    """The conversation that a step is part of, or None."""
    type_, identifier = getattr(step, "agent_type", None), getattr(step, "identifier", None)
    if type_ is None or identifier is None:
        return None
    return conversation(agent_of(flow, type_), type_, identifier)
