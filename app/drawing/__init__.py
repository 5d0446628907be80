"""Drawings of a session as SVG and as text: layers of steps, nested loops, live states (pure)."""

from __future__ import annotations
