"""Views of what a tree of sessions shares: named locks and values."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from leadhand.models.views.view import View


class LockOwnerView(View):
    """A holder of a lock, or one that waits for it."""

    session: str
    #: The step whose attempt it is; null if the session itself is.
    address: str | None = None
    #: The name of the token that was used.
    by: str
    since: str


class LockView(View):
    """A named lock that is held, or that is waited for."""

    name: str
    holder: LockOwnerView | None = None
    #: The number of the grant: it is above those of all grants before.
    fence: int | None = None
    #: When the grant is over, unless it is renewed.
    until: str | None = None
    #: Those who wait, the first of them first.
    waiting: list[LockOwnerView] = []


class LockGrant(View):
    """The answer to one that wants a lock."""

    name: str
    state: Literal["held", "waiting"]
    #: The id of this holder, which renews and releases the lock.
    holder: str
    #: The number of the grant: it is above those of all grants before. Pass it on to what the lock
    #: protects, so that this can refuse an older one.
    fence: int | None = None
    until: str | None = None
    #: Of one that waits: how many are before it, and who holds the lock.
    before: int = 0
    held_by: LockOwnerView | None = None


class LockRelease(View):
    """What became of a release."""

    name: str
    #: False if the holder did not hold the lock any more: its time was over.
    released: bool


class ValueHead(View):
    """A key of the values that a tree of sessions shares."""

    key: str
    #: Changes with the value; a tree uses no version twice.
    version: int
    at: str
    #: The name of the token that stored it.
    by: str


class ValueView(ValueHead):
    """A value that a tree of sessions shares."""

    value: JsonValue
