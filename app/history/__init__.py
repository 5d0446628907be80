"""Reads a session's history: snapshot, lineage, ledger, transcript, conversations."""

from __future__ import annotations
