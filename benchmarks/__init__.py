"""Benchmarks: commands, bytes, memory and time per step, beside plain Celery."""

from __future__ import annotations
