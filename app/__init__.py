"""The engine without its transport: compilers, domain rules, operations, queries and the store."""

from __future__ import annotations
