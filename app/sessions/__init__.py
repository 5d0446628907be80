"""Sessions: what is done to them, and what readers see of them."""
