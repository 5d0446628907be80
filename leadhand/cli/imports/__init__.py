"""`leadhand import`: takes over sessions of a state folder from before, or from elsewhere."""
