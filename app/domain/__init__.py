"""Domain values and rules: programs, addresses, states, outcomes, budgets (pure)."""

from __future__ import annotations
