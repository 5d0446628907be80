"""Receives HTTP requests: gunicorn worker, connections and framing."""

from __future__ import annotations
