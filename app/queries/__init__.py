"""The read side: session views, lists, results, explanations and the fleet overview."""

from __future__ import annotations
