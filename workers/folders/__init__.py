"""Working folders and spill folders: checks, snapshots, diffs and cleanup."""

from __future__ import annotations
