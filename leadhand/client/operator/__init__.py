"""The calls that operators make: limits, tokens and statistics (pure)."""
