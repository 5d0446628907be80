"""Stacks of workflow sessions over REST."""
