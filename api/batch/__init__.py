"""Submits many documents in one request."""
