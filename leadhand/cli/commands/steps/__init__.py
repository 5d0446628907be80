"""Commands that make sessions from others: fork and rerun."""

from __future__ import annotations
