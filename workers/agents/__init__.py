"""Doers and agents: runs agents, shell commands and Python functions, and parses their output."""

from __future__ import annotations
