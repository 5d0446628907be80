"""The store of artifacts: a folder of files that are named by the SHA-256 of their bytes."""

from __future__ import annotations
