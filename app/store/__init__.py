"""Access to Redis: keys, transitions as Lua functions, scans and token records."""

from __future__ import annotations
