"""What people are told of a flow that runs: whether its file is another one by now."""

from __future__ import annotations

from collections.abc import Mapping

from app.catalog import Catalog
from app.errors import FlowUnknown
from app.flow_sources import Source
from app.records import StepRecord

_KEEPS = "the session keeps what it was started with"


def changes(catalog: Catalog, source: str) -> list[str]:
    """How the file of a session's flow is not what it was at the start; nothing where it is."""
    if not source or not catalog.folders:
        return []
    began = Source.model_validate_json(source)
    try:
        now = catalog.one(began.flow)
    except FlowUnknown:
        return [f"flow {began.flow!r} is gone since; {_KEEPS}"]
    if now.error is not None:
        return [f"flow {began.flow!r} has changed since and is broken: {now.error}; {_KEEPS}"]
    if now.hash == began.hash:
        return []
    return [f"flow {began.flow!r} has changed since; {_KEEPS}, unless it is resumed --as new"]


def kept(source: str) -> dict[str, str]:
    """The steps whose child sessions went on by their flow as it was, as another was taken over."""
    return Source.model_validate_json(source).kept if source else {}


def left_behind(
    id_: str, children: Mapping[str, str], records: Mapping[str, StepRecord]
) -> list[str]:
    """Those of them that still do."""
    anew = f"to begin it anew, stop, and `leadhand resume {id_} --as new --after` a step before it"
    return [
        f"{address} waits for {child}, whose flow goes on as it began; {anew}"
        for address, child in sorted(children.items())
        if address in records and (records[address].parked or {}).get("child") == child
    ]
