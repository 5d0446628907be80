"""The operations on what a tree of sessions shares: named locks and values."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, JsonValue

from leadhand.contract.calls import Ask, Noun, Op, Steps
from leadhand.contract.operation import (
    GONE,
    SHARES,
    Body,
    BodyRight,
    NoQuery,
    Operation,
    PageQuery,
    Query,
    Scope,
    Whole,
    replies,
)
from leadhand.contract.requests import calls, given, idempotent, reads, request, strictly_dumped
from leadhand.models.patterns import SHARED_NAME
from leadhand.models.views.shared import LockGrant, LockRelease, LockView, ValueHead, ValueView
from leadhand.models.views.view import Page

_LOCKS = "/v1/sessions/{session}/locks"
_VALUES = "/v1/sessions/{session}/kv"
_LOOKS = BodyRight("read", "own")
Holder = Annotated[str, Field(min_length=1, max_length=64, pattern="^[!-~]+$")]
Seconds = Annotated[float, Field(ge=1, le=3600)]
Version = Annotated[int, Field(ge=0, le=2**53)]


LOCKS = Operation[NoQuery](
    name="locks.listed", method="GET", path=_LOCKS,
    summary="List the named locks of a session's tree",
    responses=(replies(Page[LockView], "Those that are held or waited for, by name."),),
    scope=Scope.READ,
    body_right=_LOOKS,
)  # fmt: skip


class Acquire(Body):
    """A lock that the caller wants."""

    #: The name of the lock in the tree of sessions.
    name: Annotated[str, Field(pattern=SHARED_NAME)]
    #: How long the lock is held, unless it is renewed.
    ttl_s: Seconds = 60.0
    #: Whether to wait in the line if another one has the lock: call again within 10 s, with the
    #: same holder, until the state is held.
    queue: bool = False
    #: The id of this holder, which is new for each grant; by default the API makes one.
    holder: Holder | None = None


ACQUIRE_LOCK = Operation[Acquire](
    name="locks.acquire", method="POST", path=_LOCKS,
    summary="Take a named lock of a session's tree, or wait for it",
    responses=(replies(LockGrant, "The lock is held."),
               replies(LockGrant, "The caller has a place in the line; call again.", 202)),
    scope=Scope.CONTROL,
    body_right=SHARES, body=Acquire, body_required=True, refuses=(409,),
)  # fmt: skip


class Renew(Body):
    """The extension of a grant."""

    holder: Holder
    #: The number of the grant.
    fence: Annotated[int, Field(ge=1, le=2**53)]
    #: How long the lock is held from now on, unless it is renewed again.
    ttl_s: Seconds = 60.0


RENEW_LOCK = Operation[Renew](
    name="locks.renew", method="PUT", path=f"{_LOCKS}/{{lock:path}}",
    summary="Extend the time of a named lock",
    responses=(replies(LockGrant, "The lock is held."),),
    scope=Scope.CONTROL,
    body_right=SHARES, body=Renew, body_required=True, refuses=(409,),
)  # fmt: skip


class ReleaseQuery(Query):
    """The query of a release."""

    #: The id of the holder.
    holder: Holder


RELEASE_LOCK = Operation[ReleaseQuery](
    name="locks.release", method="DELETE", path=f"{_LOCKS}/{{lock:path}}",
    summary="Release a named lock, or leave its line",
    responses=(replies(LockRelease, "Whether it was held until now."),),
    scope=Scope.CONTROL,
    body_right=SHARES, query=ReleaseQuery,
)  # fmt: skip


class ValuesQuery(PageQuery):
    """A page of keys."""

    #: Only keys that begin with this.
    prefix: Annotated[str, Field(max_length=200)] = ""


VALUES = Operation[ValuesQuery](
    name="kv.listed", method="GET", path=_VALUES,
    summary="List the keys of the values that a session's tree shares",
    responses=(replies(Page[ValueHead], "A page of keys, by name."),),
    scope=Scope.READ,
    body_right=_LOOKS, query=ValuesQuery,
)  # fmt: skip


VALUE = Operation[NoQuery](
    name="kv.one", method="GET", path=f"{_VALUES}/{{key:path}}",
    summary="Read a value that a session's tree shares",
    responses=(replies(ValueView, "The value as it is now."),),
    scope=Scope.READ,
    body_right=_LOOKS,
)  # fmt: skip


class SetValue(Body):
    """A value to store."""

    #: Any JSON, of at most 64 KiB.
    value: JsonValue
    #: Store it only if this is the version as it is now; 0 if there must be no value.
    if_version: Version | None = None


SET_VALUE = Operation[SetValue](
    name="kv.put", method="PUT", path=f"{_VALUES}/{{key:path}}",
    summary="Store a value for a session's tree",
    responses=(replies(ValueHead, "The key, with the new version."),),
    scope=Scope.CONTROL,
    body_right=SHARES, body=SetValue, body_required=True, headers=("Idempotency-Key",),
    refuses=(409, 412),
)  # fmt: skip


class DeleteValueQuery(Query):
    """The query of a deletion."""

    #: Delete it only if this is the version as it is now.
    if_version: Whole | None = None


DELETE_VALUE = Operation[DeleteValueQuery](
    name="kv.delete", method="DELETE", path=f"{_VALUES}/{{key:path}}",
    summary="Delete a value of a session's tree",
    responses=(GONE,),
    scope=Scope.CONTROL,
    body_right=SHARES, query=DeleteValueQuery, headers=("Idempotency-Key",), refuses=(409, 412),
)  # fmt: skip


class Shared(Noun):
    """Takes named locks, and reads and stores values, of a session's tree."""

    @calls(LOCKS)
    def locks(self, session: str) -> list[LockView]:
        """List the named locks of a session's tree that are held or waited for."""

    @Op
    def renew_lock(self, session: str, grant: LockGrant, *, ttl_s: float = 60.0) -> Ask[LockGrant]:
        """Extend a held lock to `ttl_s` seconds from now. Raises LockLost if its time is over."""
        body = {"holder": grant.holder, "fence": grant.fence or 0, "ttl_s": ttl_s}
        return reads(LockGrant, request(RENEW_LOCK, session, grant.name, body=body))

    @Op
    def release_lock(self, session: str, grant: LockGrant) -> Steps[bool]:
        """Release a lock. Returns False if it was no longer held."""
        call = request(RELEASE_LOCK, session, grant.name, holder=grant.holder)
        return (yield from reads(LockRelease, call)).released

    @calls(VALUES)
    def values(
        self,
        session: str,
        *,
        prefix: str = "",
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[ValueHead]:
        """List a page of the keys (not the values) that a session's tree shares, sorted by name."""

    @calls(VALUE)
    def value(self, session: str, key: str) -> ValueView:
        """Read a value that a session's tree shares, by its key. Raises ValueUnknown."""

    @Op
    def set_value(
        self, session: str, key: str, value: Any, *, if_version: int | None = None
    ) -> Ask[ValueHead]:
        """Store a JSON value under a key of a session's tree; `if_version` makes it conditional.

        The value has at most 64 KiB. With `if_version` it is stored only if that is the version as
        it is now; 0: there is none. Raises ValueChanged, ValueRefused.
        """
        content = strictly_dumped({"value": value, **given(if_version=if_version)})
        call = request(SET_VALUE, session, key, headers=idempotent(), content=content)
        return reads(ValueHead, call)

    @calls(DELETE_VALUE)
    def delete_value(self, session: str, key: str, *, if_version: int | None = None) -> None:
        """Delete a value of a session's tree by its key; no error if there is none.

        With `if_version` only if that is its version. Raises ValueChanged, ValueRefused.
        """
