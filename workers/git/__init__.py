"""Git worktrees and copies: made, merged, applied, cleaned and audited."""
