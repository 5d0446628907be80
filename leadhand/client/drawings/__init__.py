"""The operation of the clients on drawings."""

from __future__ import annotations
