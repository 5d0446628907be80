"""The flow file format: steps, structure, faults and files."""

from __future__ import annotations
