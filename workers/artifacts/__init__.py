"""How a worker stores and reads artifacts of the API whose folder it does not share."""

from __future__ import annotations
