"""The roles of the sessions of a plan, and their phases (pure)."""
