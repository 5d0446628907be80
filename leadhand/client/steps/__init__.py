"""The operations of the clients on single steps: skip, fork and rerun."""

from __future__ import annotations
