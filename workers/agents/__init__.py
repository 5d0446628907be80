"""Doers: named agents, free commands and Python callables."""

from __future__ import annotations
