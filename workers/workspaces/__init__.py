"""Folders of their own for the tasks of plans: git worktrees and copies."""

from __future__ import annotations
