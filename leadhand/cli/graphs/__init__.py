"""The commands of graphs."""

from __future__ import annotations
