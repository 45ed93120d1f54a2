"""Radial basis function networks: the layer, the heads, and what sets, checks and trains them."""
