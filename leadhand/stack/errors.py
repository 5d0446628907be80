"""The error of a stack's state."""

from __future__ import annotations

from leadhand.errors import LeadhandError


class StateError(LeadhandError):
    """No workflow session is active, or the named one is unknown or not on the stack."""
