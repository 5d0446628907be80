"""Filters sessions by status, kind, name, label, folder, reason, parent and time (pure)."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from app.domain.reasons import ReasonCode
from app.domain.states import SessionKind
from app.store.session_index import folder_fact

ShownStatus = Literal[
    "active", "waiting", "stopping", "stopped", "exiting", "exited", "aborting", "aborted",
    "completed", "failed",
]  # fmt: skip

_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)


def _instant(value: object) -> object:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        raise ValueError("it should be a time with its offset; such as 2026-11-21T12:00:00Z")
    return value


#: A timestamp in RFC 3339 format; other formats of pydantic are refused.
Instant = Annotated[
    datetime,
    BeforeValidator(_instant),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Word = Annotated[str, Field(min_length=1, max_length=120)]


#: An absolute path, without `..` and doubled or trailing slashes.
Folder = Annotated[
    str,
    Field(min_length=1, max_length=4096, pattern="^/"),
    AfterValidator(lambda path: posixpath.normpath("/" + path.lstrip("/"))),
]


class SessionFilter(BaseModel):
    """Conditions that a session must all meet; unset ones do not apply."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: Any of these.
    status: Annotated[tuple[ShownStatus, ...], Field(max_length=10)] = ()
    kind: SessionKind | None = None
    name: Word | None = None
    label: Word | None = None
    #: The folder that it was submitted from, or one above.
    folder: Folder | None = None
    #: The code of its current reason.
    reason: ReasonCode | None = None
    #: The session whose step started it.
    parent: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")] | None = None
    #: Archived sessions: without them, with them, or only them.
    archived: Literal["no", "any", "only"] = "no"
    #: At this time or later.
    created_after: Instant | None = None
    #: Before this time.
    created_before: Instant | None = None

    @property
    def matches_all(self) -> bool:
        """Whether the filter matches every session."""
        return not self.model_dump(exclude_defaults=True)

    @property
    def facts(self) -> dict[str, str]:
        """Returns the filter's set values of kind, label, name and folder, for an index lookup."""
        folder = None if self.folder is None else folder_fact(self.folder)
        given = {"kind": self.kind, "label": self.label, "name": self.name, "folder": folder}
        return {name: value for name, value in given.items() if value is not None}

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether a session's fields match; the caller checks its status and creation time."""
        return (
            self.kind in (None, fields.get("kind"))
            and self.name in (None, fields.get("name"))
            and self.label in (None, fields.get("label"))
            and (self.folder is None or _is_in(fields.get("listed_in", ""), self.folder))
            and (self.archived == "any" or (self.archived == "only") == ("archived" in fields))
            and (self.reason is None or self.reason == _within(fields.get("reason"), "code"))
            and (self.parent is None or self.parent == _within(fields.get("parent"), "session"))
        )

    @property
    def first_ms(self) -> int:
        """Returns the earliest creation time that the filter allows, in epoch ms; 0 without one."""
        return _ms(self.created_after) if self.created_after else 0

    @property
    def end_ms(self) -> int | None:
        """Returns the epoch ms before which a session must be created; None without an end."""
        return _ms(self.created_before) if self.created_before else None


def _is_in(path: str, folder: str) -> bool:
    """Whether a path is the folder or beneath it.

    >>> _is_in("/a/b", "/a"), _is_in("/a", "/a"), _is_in("/ab", "/a"), _is_in("/a", "/")
    (True, True, False, True)
    """
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _within(text: str | None, name: str) -> str | None:
    return json.loads(text).get(name) if text else None


def _ms(at: datetime) -> int:
    """Rounds a time up to whole ms."""
    return -int(-at.timestamp() * 1000 // 1)
