"""Webhook deliveries, and their HTTP client."""

from __future__ import annotations
