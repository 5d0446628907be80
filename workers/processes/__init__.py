"""Runs commands as process trees: launcher, lease, captured output, orphans, warm processes."""

from __future__ import annotations
