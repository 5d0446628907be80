"""What becomes of sessions that are done: the archive flag, and exports before a deletion."""
