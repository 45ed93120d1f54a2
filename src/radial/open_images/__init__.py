"""Open Images V7: balanced subsets, the same files for everyone."""
