"""Changes of stacks of workflow sessions."""
