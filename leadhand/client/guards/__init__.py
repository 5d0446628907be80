"""The operations of the clients on Stop guards."""

from __future__ import annotations
