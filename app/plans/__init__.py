"""Plans: their tasks, their edits, and the child sessions that carry them out."""
