"""Notes about flow files that changed or disappeared since a session started."""

from __future__ import annotations

from collections.abc import Mapping

from app.catalog.flow_catalog import Catalog
from app.catalog.source import Source
from app.domain.records import StepRecord
from app.errors import FlowUnknown

_UNAFFECTED = "the session keeps what it was started with"


def changes(catalog: Catalog, source: str) -> list[str]:
    """Returns a note if the flow's file changed since the session copied it; else an empty list."""
    if not source or not catalog.folders:
        return []
    began = Source.model_validate_json(source)
    try:
        now = catalog.one(began.flow)
    except FlowUnknown:
        return [f"flow {began.flow!r} was removed since; {_UNAFFECTED}"]
    if now.error is not None:
        return [f"flow {began.flow!r} has changed since and is broken: {now.error}; {_UNAFFECTED}"]
    if now.hash == began.hash:
        return []
    return [f"flow {began.flow!r} has changed since; {_UNAFFECTED}, unless it is resumed --as new"]


def pinned_children(source: str) -> dict[str, str]:
    """Returns the steps whose child sessions kept the old flow when the session adopted another."""
    return Source.model_validate_json(source).kept if source else {}


def outdated_children(
    id_: str, children: Mapping[str, str], records: Mapping[str, StepRecord]
) -> list[str]:
    """Returns a text for each step that still waits for a child session running an old flow."""
    fix = f"to restart it, stop, and `leadhand resume {id_} --as new --after` a step before it"
    return [
        f"{address} waits for {child}, which runs the old flow; {fix}"
        for address, child in sorted(children.items())
        if address in records and (records[address].parked or {}).get("child") == child
    ]
