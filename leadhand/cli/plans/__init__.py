"""Reads, edits and refines plans for the command line."""

from __future__ import annotations
