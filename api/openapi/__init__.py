"""The OpenAPI document of the API, and the page that shows it."""

from __future__ import annotations
