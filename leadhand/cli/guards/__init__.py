"""Stop guards on the agent's side: the gates, the hook, its settings, and the counters."""

from __future__ import annotations
