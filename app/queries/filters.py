"""Compares sessions with a filter: by kind, name, label, folder, reason, parent and time (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from app.store.session_index import folder_fact
from leadhand.contract.sessions import SessionFilter


def facts_of(wanted: SessionFilter) -> dict[str, str]:
    """Returns the filter's set values of kind, label, name and folder, for an index lookup."""
    folder = None if wanted.folder is None else folder_fact(wanted.folder)
    given = {"kind": wanted.kind, "label": wanted.label, "name": wanted.name, "folder": folder}
    return {name: value for name, value in given.items() if value is not None}


def matches(wanted: SessionFilter, fields: Mapping[str, str]) -> bool:
    """Whether a session's fields match; the caller checks its status and creation time."""
    archived = wanted.archived == "any" or (wanted.archived == "only") == ("archived" in fields)
    return (
        archived
        and wanted.kind in (None, fields.get("kind"))
        and wanted.name in (None, fields.get("name"))
        and wanted.label in (None, fields.get("label"))
        and (wanted.folder is None or _is_in(fields.get("listed_in", ""), wanted.folder))
        and (wanted.reason is None or wanted.reason == _within(fields.get("reason"), "code"))
        and (wanted.parent is None or wanted.parent == _within(fields.get("parent"), "session"))
    )


def first_ms(wanted: SessionFilter) -> int:
    """Returns the earliest creation time that the filter allows, in epoch ms; 0 without one."""
    return _ms(wanted.created_after) if wanted.created_after else 0


def end_ms(wanted: SessionFilter) -> int | None:
    """Returns the epoch ms before which a session must be created; None without an end."""
    return _ms(wanted.created_before) if wanted.created_before else None


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
