"""Lists the diffs of the doers' work; where there are none, gives the reason."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from app.domain.addresses import by_number, iteration_of
from app.domain.ids import SessionRef
from app.domain.program import Action, Program
from app.queries.cursors import encode_cursor, number_of
from app.queries.presenters import diff_view
from app.store.store import Store
from leadhand.models.views.step import DiffsPage, NoDiffs, NoDiffsWhy

#: Maximum number of outcomes that are read for the reason, newest first: as many as diffs are kept.
_READ = 200
#: Outcomes that are read at once: each may have 64 kB of text.
_BATCH = 50
#: Of several reasons, the first one of these is given: the others explain less.
_ORDER: tuple[NoDiffsWhy, ...] = (
    "replaced", "slow", "unreadable", "no_git", "not_compared", "unchanged",
)  # fmt: skip


def diffs_page(
    store: Store,
    ref: SessionRef,
    fields: Mapping[str, str],
    program: Program | None,
    *,
    iteration: int | None,
    limit: int,
    cursor: str | None,
) -> DiffsPage:
    """Returns a page of a session's agent diffs, of one iteration or all; if none, why."""
    start = number_of(cursor)
    meant = _of_iteration(store.names(ref, "diffs"), iteration)
    shown = meant[start : start + limit]
    kept = store.values(ref, "diffs", shown)
    if meant:
        items = [diff_view(address, text) for address, text in kept.items()]
        more = encode_cursor(start + limit) if len(meant) > start + limit else None
        return DiffsPage(items=items, next=more)
    folder = fields.get("cwd") or None
    why = _why_none(store, ref, program, iteration) if folder else "no_folder"
    return DiffsPage(items=[], none=NoDiffs(why=why, folder=folder))


def _of_iteration(addresses: Sequence[str], iteration: int | None) -> list[str]:
    known = sorted(filter(None, addresses), key=by_number)
    return [a for a in known if iteration is None or iteration_of(a) == iteration]


def _why_none(
    store: Store, ref: SessionRef, program: Program | None, iteration: int | None
) -> NoDiffsWhy:
    doers = [
        address
        for address in _of_iteration(store.names(ref, "out"), iteration)
        if program is not None
        and (step := program.step_or_none(address)) is not None
        and step.action is Action.AGENT
    ][-_READ:]
    found: set[NoDiffsWhy] = set()
    for start in range(0, len(doers), _BATCH):
        texts = store.values(ref, "out", doers[start : start + _BATCH]).values()
        found |= {_why_of(json.loads(text)) for text in texts}
    return next((why for why in _ORDER if why in found), "not_ended")


def _why_of(outcome: Mapping[str, object]) -> NoDiffsWhy:
    """Why the diffs have none of this outcome's."""
    if outcome.get("diff"):
        return "replaced"
    given = outcome.get("no_diff")
    if given in _ORDER:
        return _ORDER[_ORDER.index(given)]
    return "not_compared"
