"""Verbs at one step of a session that rests."""

from __future__ import annotations
