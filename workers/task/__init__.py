"""The input of a step's body: its task, its inputs and the functions that it calls."""

from __future__ import annotations
