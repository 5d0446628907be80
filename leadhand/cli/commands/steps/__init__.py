"""Commands for single steps of a session: retry, skip, fork and rerun."""

from __future__ import annotations
