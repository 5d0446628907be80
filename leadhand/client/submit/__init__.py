"""The operations of the clients that start sessions, with the environment of their bodies."""
