"""The operation of the clients that submits many documents."""

from __future__ import annotations
