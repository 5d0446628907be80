"""The fleet as workers report it: inventory, admission, placement, agents and tools."""

from __future__ import annotations
