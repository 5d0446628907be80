"""The fleet over REST: its state, its metrics and its statistics."""
