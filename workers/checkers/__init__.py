"""Checkers: commands, agents, Python callables and rubrics, and the judge of their verdicts."""

from __future__ import annotations
