"""Computes the plan of a resume: what is kept and what runs again."""

from __future__ import annotations
