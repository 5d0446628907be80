"""The HTTP client of Leadhand's API, synchronous and asynchronous, with its event stream."""

from __future__ import annotations
