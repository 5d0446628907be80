"""The engine without its transport: rules, compilers, a room for each noun, and the store."""

from __future__ import annotations
