"""How far a session is: the share of its work that is done, and its drawing."""

from __future__ import annotations
