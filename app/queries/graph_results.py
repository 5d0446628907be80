"""The results of the steps of a graph that has ended."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import NamedTuple

from pydantic import JsonValue

from app.domain.artifacts import ArtifactSource, marker
from app.domain.ids import SessionRef
from app.domain.program import Action, Program, Step
from app.history.graph_values import NOT_RUN, read_values
from app.redaction import without_keys
from app.store.store import Store
from leadhand.errors import ArtifactUnknown

#: Bytes of artifacts that one result holds; further ones are shown by their digests.
MOST_BYTES = 4 * 1024 * 1024


class GraphResults(NamedTuple):
    """What the steps of a graph returned, by name, and the names of those that failed."""

    results: dict[str, JsonValue]
    failed: list[str]


def graph_results(
    store: Store, ref: SessionRef, program: Program, artifacts: ArtifactSource
) -> GraphResults:
    """Returns the results of a graph's steps by name, without skipped ones, and which failed.

    That of a step that failed is `{"error": text}`, and that of one whose artifact is too long or
    missing `{"artifact": digest, "bytes": size}`.
    """
    steps = [
        node
        for node in program.body
        # Others make the list of a for_each, or the folder of the session.
        if isinstance(node, Step) and not node.quick and node.action is not Action.WORKSPACE
    ]
    values = read_values(store, ref, program, [step.id for step in steps], _Bounded(artifacts))
    found = {
        without_keys(step.label or step.id): values[step.id].held
        for step in steps
        if values[step.id] is not NOT_RUN and values[step.id].skipped is None
    }
    results = {name: held.value for name, held in found.items()}
    return GraphResults(results, [name for name, held in found.items() if held.failed])


class _Bounded:
    """Reads artifacts up to a number of bytes together."""

    def __init__(self, source: ArtifactSource) -> None:
        self._source = source
        self._left = MOST_BYTES

    def read(self, ref: SessionRef, digest: str, size: int) -> bytes:
        """The artifact, or what is shown in its place."""
        if size <= self._left:
            with suppress(ArtifactUnknown):
                self._left -= size
                return self._source.read(ref, digest, size)
        return json.dumps(marker(digest, size)).encode()
