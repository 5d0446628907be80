"""The share of a session's work that is done, and an estimate of the rest (pure).

The transitions count the work in the session's record (`lib/steps/shares.lua`): `expected` is all
of it, `covered` what is done or not needed any more, and `began` when it began, moved by the time
in which nothing was done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from app.domain.states import SessionStatus

#: The least share from which the time left is estimated, as in `lib/steps/shares.lua`.
_LEAST = 0.1


class WorkShare(NamedTuple):
    """The share from 0 to 1, and the seconds of the work so far and of the rest."""

    share: float | None = None
    elapsed_s: float | None = None
    left_s: float | None = None


def work_share(fields: Mapping[str, str], now_ms: int) -> WorkShare:
    """Computes which share of a session's work is done, and estimates the time left.

    >>> active = {"status": "active", "expected": "40", "covered": "10", "began": "0"}
    >>> work_share(active, 5_000)
    WorkShare(share=0.25, elapsed_s=5.0, left_s=15.0)
    >>> work_share({**active, "covered": "1"}, 5_000).left_s is None
    True
    >>> work_share({**active, "status": "completed", "paused": "9000"}, 50_000)
    WorkShare(share=1.0, elapsed_s=9.0, left_s=None)
    """
    expected = int(fields.get("expected") or 0)
    if expected <= 0:
        return WorkShare()
    status = fields["status"]
    runs = status in (SessionStatus.ACTIVE, SessionStatus.STOPPING)
    until = now_ms if runs else int(fields.get("paused") or now_ms)
    elapsed_s = max(0, until - int(fields["began"])) / 1000
    if status == SessionStatus.COMPLETED:
        return WorkShare(1.0, elapsed_s)
    done = max(0.0, min(1.0, int(fields.get("covered") or 0) / expected))
    left_s = elapsed_s * (1 - done) / done if done >= _LEAST and runs else None
    return WorkShare(int(done * 10_000) / 10_000, elapsed_s, left_s and round(left_s, 1))
