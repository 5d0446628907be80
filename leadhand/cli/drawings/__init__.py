"""`leadhand draw`: a session as a drawing."""

from __future__ import annotations
