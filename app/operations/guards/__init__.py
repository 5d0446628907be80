"""Stop guards: sessions of kind `guard` that remember the stops of an agent."""

from __future__ import annotations
