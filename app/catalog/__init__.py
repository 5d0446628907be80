"""Flow files on disk, reloaded when they change."""

from __future__ import annotations
