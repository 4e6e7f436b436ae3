"""Records the memory of the process and of the model while it trains."""
