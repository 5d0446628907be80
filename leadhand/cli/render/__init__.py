"""Formats sessions, progress and tables for the terminal."""

from __future__ import annotations
