"""An audit as a client asks for it: many calls that each look at some of it, as one."""

from __future__ import annotations

from leadhand.views import FsckView

#: Findings that are kept of one audit; what is more is counted.
SHOWN = 1000


def joined(so_far: FsckView | None, page: FsckView) -> FsckView:
    """What was found up to now, with one more call's part."""
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
