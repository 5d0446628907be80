"""The rules: programs, states, outcomes and routes, without a store (pure)."""
