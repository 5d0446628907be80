"""API tokens, step tokens, signatures, egress rules, and permission to run commands."""

from __future__ import annotations
