"""The agents and tools that a worker offers, from agents.toml and its tool folders."""

from __future__ import annotations
