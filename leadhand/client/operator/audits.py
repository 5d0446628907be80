"""Combines the pages of an audit of the store (pure)."""

from __future__ import annotations

from leadhand.models.views import FsckView

#: The most findings of an audit that are kept; more are only counted.
SHOWN = 1000


def combine_audits(so_far: FsckView | None, page: FsckView) -> FsckView:
    """Adds a page of an audit to the pages before: sums counts, keeps the first 1000 findings."""
    if so_far is None:
        return page
    return FsckView(
        items=[*so_far.items, *page.items][:SHOWN],
        found=so_far.found + page.found,
        left=so_far.left + page.left,
        keys=so_far.keys + page.keys,
        sessions=so_far.sessions + page.sessions,
        next=page.next,
    )
