"""Slots that a worker adds while its bodies wait for their child sessions.

A body that waits for a child holds a process of the pool. If all processes waited like that, no
child could run. So the pool has one more process for each that has a child at work.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

from celery.utils.log import current_process_index  # type: ignore[attr-defined]  # not in its stubs

#: Maximum processes that are added.
MOST = 64
#: Maximum index of a pool process.
_INDEXES = 1024


class LentSlots:
    """Which pool processes have a child at work, in memory shared by all of them."""

    def __init__(self) -> None:
        self._lends = multiprocessing.get_context("fork").Array("b", _INDEXES, lock=False)

    def lender(self) -> Callable[[bool], None]:
        """Return the function by which a pool process lends its slot and takes it back."""
        index = (current_process_index(base=0) or 0) % _INDEXES
        self._lends[index] = 0  # of a process before, which was killed

        def lend(lends: bool, /) -> None:
            self._lends[index] = int(lends)

        return lend

    def count(self) -> int:
        """Return the number of pool processes that have lent their slot to a child session."""
        return min(MOST, sum(bytes(self._lends)))
