"""The environment of a session, and its error (pure)."""
