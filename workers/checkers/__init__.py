"""Checkers: commands, agents and Python callables, and the judge of them all."""

from __future__ import annotations
