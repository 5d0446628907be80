"""Commands for the inbox of a session: hints, notices to a parent, and hooks."""

from __future__ import annotations
