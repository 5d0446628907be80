"""Commands for what a tree of sessions shares: named locks and values."""

from __future__ import annotations
