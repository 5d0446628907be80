"""Troubles of the services while a client waits: how they are noticed and reported."""
