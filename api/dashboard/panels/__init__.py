"""Parts of pages that are made from data: matrices, diffs and forms (pure)."""
