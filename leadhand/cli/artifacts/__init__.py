"""`leadhand artifacts`: results and outputs of steps that are too long for Redis."""

from __future__ import annotations
