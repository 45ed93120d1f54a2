"""What frozen features are worth."""
