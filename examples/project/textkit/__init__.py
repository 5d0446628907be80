"""A very small library for texts."""

from __future__ import annotations
