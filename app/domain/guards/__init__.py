"""Stop guards: what an agent that wants to stop is answered (pure)."""

from __future__ import annotations
