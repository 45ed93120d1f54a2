"""Report cards: what labels, kernels and features say of a checkpoint."""
