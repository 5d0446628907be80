"""Transitions of plans: edits, reports, facts and the tasks that may start."""
