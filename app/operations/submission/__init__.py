"""Programs of submitted documents: each distinct document is compiled once."""

from __future__ import annotations
