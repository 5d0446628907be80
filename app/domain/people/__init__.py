"""What people are asked, and when they are called for."""

from __future__ import annotations
