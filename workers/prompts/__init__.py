"""Everything a prompt is made from: its inputs, the order of its sections and its wording."""

from __future__ import annotations
