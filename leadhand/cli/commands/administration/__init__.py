"""Commands for operators: the store, its audit, tokens and limits."""

from __future__ import annotations
